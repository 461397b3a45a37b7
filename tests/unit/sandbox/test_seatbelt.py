"""The seatbelt profile as data: its whole text, and what its rules decide, read as macOS reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.git_repo import Owner
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.checkup import sandbox_finding
from codebutler_worker.sandbox.checkout import Checkout
from codebutler_worker.sandbox.port import ProxySocket, SandboxPolicy
from codebutler_worker.sandbox.seatbelt import SeatbeltSandbox, quoted, seatbelt_profile
from codebutler_worker.sandbox.select import select_sandbox
from codebutler_worker.sandbox.system import Inside

GOLDEN = Path(__file__).parents[2] / "golden" / "sandbox" / "seatbelt.sb"
HOME = Path("/Users/ana")
REPO = HOME / "code" / "shop"
SCRATCH = Path("/private/var/folders/codebutler-501-abc")
INSIDE = Inside(
    home=HOME,
    home_paths=(HOME / ".claude",),
    readable=((HOME / ".local/bin/claude", HOME / ".local/share/claude/2.1/claude"),),
    hidden=(HOME / ".codebutler",),
)
CHECKOUT = Checkout(
    root=REPO,
    owner=Owner(501, 20),
    pinned=(REPO / ".git",),
    fixed=(REPO / ".git" / "hooks", REPO / ".git" / "config"),
    private=REPO / ".codebutler",
    shared=(REPO / ".codebutler" / "files",),
)
TOKENS = re.compile(r'#?"(?:[^"\\]|\\.)*"|[()]|[^\s()]+')
Rule = list[Any]


def read(profile: str) -> list[Rule]:
    """The profile's rules as nested lists."""
    stack: list[Rule] = [[]]
    for token in TOKENS.findall(profile):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    assert len(stack) == 1, "unbalanced"
    return stack[0]


def allows(profile: str, operation: str, path: str) -> bool:
    """What the last rule that fits says."""
    decided = False
    for verb, *rest in read(profile):
        if verb not in ("allow", "deny") or rest == ["default"]:
            continue
        names = [name for name in rest if isinstance(name, str)]
        filters = [each for each in rest if isinstance(each, list)]
        if any(_covers(name, operation) for name in names) and all(_fits(each, path) for each in filters):
            decided = verb == "allow"
    return decided


def _covers(name: str, operation: str) -> bool:
    return name == operation or (name.endswith("*") and operation.startswith(name[:-1]))


def _fits(condition: Rule, path: str) -> bool:
    kind, value = condition[0], str(condition[1])
    text = value.lstrip("#")[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    match kind:
        case "literal":
            return path == text
        case "subpath":
            return path == text or path.startswith(text.rstrip("/") + "/")
        case "regex":
            return re.search(text, path) is not None
    return False


def test_the_whole_profile() -> None:
    assert seatbelt_profile(INSIDE, CHECKOUT, SCRATCH) == GOLDEN.read_text()


@pytest.mark.parametrize(
    ("operation", "path", "allowed"),
    [
        ("file-read-data", "/usr/bin/git", True),
        ("file-write-data", "/usr/bin/git", False),
        ("file-write-create", f"{REPO}/new.txt", True),
        ("file-write-data", f"{REPO}/.git/index", True),
        ("file-write-data", f"{REPO}/.git/config", False),
        ("file-write-create", f"{REPO}/.git/hooks/pre-commit", False),
        ("file-write-unlink", f"{REPO}/.git/hooks", False),
        ("file-write-unlink", f"{REPO}/.git", False),
        ("file-write-unlink", str(REPO), False),
        ("file-read-data", f"{REPO}/.git/config", True),
        ("file-read-data", f"{REPO}/.codebutler/store.db", False),
        ("file-read-metadata", f"{REPO}/.codebutler/store.db", False),
        ("file-write-create", f"{REPO}/.codebutler/config.json", False),
        ("file-write-unlink", f"{REPO}/.codebutler", False),
        ("file-write-create", f"{REPO}/.codebutler/files/a.txt", True),
        ("file-write-unlink", f"{REPO}/.codebutler/files", False),
        ("file-read-data", f"{HOME}/.claude/session", True),
        ("file-write-create", f"{HOME}/.claude/session", True),
        ("file-read-data", f"{HOME}/.ssh/id_ed25519", False),
        ("file-read-data", f"{HOME}/.codebutler/config.json", False),
        ("file-read-data", f"{HOME}/code/other/secret", False),
        ("file-read-data", f"{HOME}/code", False),
        ("file-read-metadata", f"{HOME}/code", True),
        ("file-read-data", f"{HOME}/.local/share/claude/2.1/claude", True),
        ("file-write-data", f"{HOME}/.local/share/claude/2.1/claude", False),
        ("file-read-data", "/private/tmp/other", False),
        ("file-write-create", f"{SCRATCH}/x", True),
        ("file-write-data", "/dev/null", True),
        ("file-write-data", "/dev/disk0", False),
        ("file-read-data", "/dev/ttys001", False),
        ("network-outbound", "/var/run/docker.sock", False),
        ("network-outbound", "/private/var/run/mDNSResponder", True),
    ],
)
def test_what_its_rules_decide(operation: str, path: str, *, allowed: bool) -> None:
    assert allows(seatbelt_profile(INSIDE, CHECKOUT, SCRATCH), operation, path) is allowed


def test_without_network_no_rule_speaks_of_one() -> None:
    inside = Inside(home=HOME, network="none")
    rules = read(seatbelt_profile(inside, CHECKOUT, SCRATCH))
    assert not [rule for rule in rules if str(rule[1]).startswith(("network", "system-socket"))]
    assert "trustd" not in str(rules)


def test_a_terminal_of_its_own_may_be_controlled() -> None:
    inside = Inside(home=HOME, own_terminal=True)
    assert allows(seatbelt_profile(inside, CHECKOUT, SCRATCH), "file-ioctl", "/dev/ttys003")


@given(st.text(alphabet='a\\"() #;', min_size=1, max_size=20))
def test_no_name_ends_its_string(name: str) -> None:
    assert read(f"(allow x (literal {quoted(name)}))") == [["allow", "x", ["literal", quoted(name)]]]


@pytest.mark.parametrize(
    ("inside", "checkout", "why"),
    [
        (Inside(home=HOME, network=ProxySocket(Path("/run/door"), 8080)), CHECKOUT, "chosen hosts"),
        (Inside(home=REPO / "home"), CHECKOUT, "register a directory below it"),
        (Inside(home=HOME, home_paths=(HOME / "code",)), CHECKOUT, "move it elsewhere"),
        (INSIDE, Checkout(root=HOME / "a\nb", owner=Owner(1, 1)), "control character"),
    ],
)
def test_what_the_walls_cannot_keep_is_refused(inside: Inside, checkout: Checkout, why: str) -> None:
    with pytest.raises(SandboxUnavailableError, match=why):
        seatbelt_profile(inside, checkout, SCRATCH)


def test_the_launch_starts_the_program_behind_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workdir = tmp_path / "work"
    workdir.mkdir()
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-not-for-agents")
    sandbox = SeatbeltSandbox(program=Path("/bin/sh"), uid=501)
    policy = SandboxPolicy(workdir=workdir, home=tmp_path / "home", env={"PATH": "/usr/bin"}, network="none")
    launch = sandbox.wrap(("git", "status"), policy)
    assert launch.argv[:2] == ("/bin/sh", "-p")
    assert launch.argv[3:] == ("git", "status")
    assert sorted(launch.env) == ["HOME", "PATH", "PWD", "TMPDIR"]
    assert allows(launch.argv[2], "file-write-create", f"{launch.env['TMPDIR']}/x")
    assert (Path(launch.env["TMPDIR"]).stat().st_mode & 0o777) == 0o700


def test_root_and_other_systems_are_refused() -> None:
    with pytest.raises(SandboxUnavailableError, match="part of macOS"):
        SeatbeltSandbox(program=Path("/usr/bin/no-such-sandbox-exec"))
    with pytest.raises(SandboxUnavailableError, match="ordinary user"):
        SeatbeltSandbox(program=Path("/bin/sh"), uid=0)


def test_doctor_says_that_nobody_has_tried_it() -> None:
    assert sandbox_finding("bwrap").level == "ok"
    told = sandbox_finding("seatbelt")
    assert told.level == "warn"
    assert "never on macOS" in told.text


async def test_where_it_is_asked_for_but_not_there_nothing_starts() -> None:
    with pytest.raises(SandboxUnavailableError, match=r"part of macOS.*global configuration"):
        await select_sandbox("seatbelt", trusted=True)
