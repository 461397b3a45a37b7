"""What a hostile address, path or remote may try when somebody has a repository cloned."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from codebutler.config.git_repo import Address, address_in
from codebutler.config.paths import Home
from codebutler.config.registry import Registry, RepoEntry
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import CodeButlerError
from codebutler.parent.checkout import CheckoutLimits, FreshCheckout, reason
from codebutler.parent.making import clear_draft, is_moved, looked_at, planned, take_back
from tests.clock import ManualClock
from tests.ordinary import give_away
from tests.packs import unfolding_commit

WHO = ("-c", "user.name=Eve", "-c", "user.email=eve@example.org", "-c", "protocol.file.allow=always")
PLENTY = CheckoutLimits(seconds=60, max_bytes=0)
URL = "git@example.org:eve/trap.git"


def git(where: Path, *words: str) -> None:
    subprocess.run(
        ["git", *WHO, "-c", "safe.directory=*", *words], cwd=where, check=True, capture_output=True
    )


async def unheard(progress: str) -> None:
    """Nobody listens."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (root := tmp_path / "projects").mkdir()
    give_away(root)
    return root


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A work tree whose files would have git start programs, if anybody's configuration let them."""
    (trap := tmp_path / "trap").mkdir()
    git(trap, "init", "-q", "-b", "main")
    (trap / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n*.bin filter=lfs\n")
    (trap / "a.txt").write_text("plain\n")
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 5\n"
    (trap / "b.bin").write_text(pointer)
    (trap / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = ext::sh -c touch% ran\n')
    (trap / ".lfsconfig").write_text("[lfs]\n\turl = ext::sh\n")
    hook = trap / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    git(trap, "add", ".")
    git(trap, "commit", "-qm", "Trap")
    return trap


@pytest.fixture
def owner(tmp_path: Path, trap: Path) -> Callable[[], dict[str, str]]:
    """The owner's environment: their ssh leads to the trap, and they have filters, hooks and templates of their own
    that leave a mark when they run."""
    home = tmp_path / "owner"
    home.mkdir()
    mark = home / "ran"
    ssh = home / "ssh"
    ssh.write_text(f'#!/bin/sh\nfor last; do :; done\nexec sh -c "${{last%% *}} {trap / ".git"}"\n')
    evil = home / "evil"
    evil.write_text(f"#!/bin/sh\necho $0 >> {mark}\ncat\n")
    for directory in ("hooks", "templates/hooks"):
        (home / directory).mkdir(parents=True)
        for name in ("post-checkout", "reference-transaction"):
            (home / directory / name).write_text(evil.read_text())
            (home / directory / name).chmod(0o755)
    for program in (ssh, evil):
        program.chmod(0o755)
    filters = "".join(
        f'[filter "{name}"]\n\tsmudge = {evil}\n\tclean = {evil}\n\trequired = true\n'
        for name in ("evil", "lfs")
    )
    (home / ".gitconfig").write_text(
        f"[core]\n\tsshCommand = {ssh}\n\thooksPath = {home / 'hooks'}\n\tfsmonitor = {evil}\n"
        f"[ssh]\n\tvariant = ssh\n[init]\n\ttemplateDir = {home / 'templates'}\n[submodule]\n\trecurse = true\n"
        f"[safe]\n\tdirectory = *\n{filters}"
    )
    give_away(home)
    give_away(trap)

    def env() -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(home), "SLACK_BOT_TOKEN": "xoxb-geheim"}

    return env


async def test_nothing_in_a_clone_starts_a_program(
    root: Path, trap: Path, owner: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    address = address_in(URL)
    assert address is not None
    place = root / "clone"
    await FreshCheckout(root, owner(), PLENTY, SystemClock()).clone(URL, address, place, unheard)
    assert (place / "a.txt").read_text() == "plain\n"
    assert (place / "b.bin").read_text().startswith("version https://git-lfs")
    assert not (tmp_path / "owner" / "ran").exists()
    assert not list(place.glob("**/ran"))
    assert not (place / ".git" / "hooks").exists()
    assert not (place / ".git" / "modules").exists()
    config = (place / ".git" / "config").read_text()
    assert "filter" not in config
    assert "recurse" not in config
    assert URL in config


async def test_a_clone_that_gets_too_large_is_ended(
    root: Path, trap: Path, owner: Callable[[], dict[str, str]]
) -> None:
    # As a server that goes on for ever.
    ssh = Path(owner()["HOME"]) / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 600\n")
    address = address_in(URL)
    assert address is not None
    with pytest.raises(CodeButlerError, match=r"newRepos\.maxMb"):
        await FreshCheckout(root, owner(), CheckoutLimits(600, 1), SystemClock()).clone(
            URL, address, root / "a", unheard
        )
    with pytest.raises(CodeButlerError, match=r"newRepos\.timeoutMinutes"):
        await FreshCheckout(root, owner(), CheckoutLimits(0.5, 0), SystemClock()).clone(
            URL, address, root / "b", unheard
        )


async def test_a_clone_whose_files_unfold_to_gigabytes_is_refused(
    root: Path, trap: Path, owner: Callable[[], dict[str, str]]
) -> None:
    (trap / ".git/refs/heads/main").write_text(f"{unfolding_commit(trap, 5 * 2**28, tip_of(trap))}\n")
    env, address = owner(), address_in(URL)
    assert address is not None
    with pytest.raises(CodeButlerError, match="needs too much memory"):
        await FreshCheckout(root, env, PLENTY, SystemClock()).clone(URL, address, root / "a", unheard)


def tip_of(repo: Path) -> str:
    return (repo / ".git/refs/heads/main").read_text().strip()


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c id", "ext::sh", "file:///etc", "/etc", "git://example.org/a", "http://example.org/a", "-uevil",
        "--upload-pack=id", "https://-oProxyCommand=id/a", "ssh://-oProxyCommand=id/a", "-oProxyCommand=id:a",
        "git@-oProxyCommand=id:a", "git@example.org:-a", "ssh://example.org/../../a", "https://example.org/a b",
        "https://example.org/a\nb", "https://example.org", "fd::17", "https::https://example.org/a", "transport::a",
        "git@example.org:../a", "https://example.org/a?b", "https://example.org/a#b", "\u202ehttps://example.org/a",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(root: Path, url: str) -> None:
    assert address_in(url) is None
    with pytest.raises(CodeButlerError):
        planned(root, "shop", url, "key", 0.0)


@pytest.mark.parametrize(
    "source",
    [
        "..", ".", "../outside", "/", "/etc", "link", "link/.git", "~", "~root", "inner/..", "./..", "repo/sub",
        "repo/.git", "nothing", "file", "-repo", "repo\x00", "loop", "a" * 5000,
    ],
)  # fmt: skip
def test_a_path_that_is_no_repository_below_the_root_is_refused(root: Path, source: str) -> None:
    outside = root.parent / "outside"
    for place in (outside, root / "repo"):
        place.mkdir()
        git(place, "init", "-q")
        (place / "sub").mkdir()
        give_away(place)
    (root / "inner").mkdir()
    (root / "file").write_text("")
    (root / "link").symlink_to(outside)
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(CodeButlerError) as refused:
        planned(root, "shop", source, "key", 0.0)
    assert "outside" not in str(refused.value)
    assert planned(root, "shop", "repo", "key", 0.0).target == str(root / "repo")


@pytest.mark.parametrize("served", ["outer", "outer/inner/vendor"])
def test_what_an_agent_may_have_made_in_a_served_repository_is_none(root: Path, served: str) -> None:
    inner = root / "outer" / "inner"
    for place in (root / "outer", inner, inner / "vendor", root / "outer-2"):
        place.mkdir()
        git(place, "init", "-q")
    (inner / ".codebutler").mkdir()
    # Nobody's commit, so it would count as its owner's own.
    (inner / ".codebutler" / "config.json").write_text('{"sandbox": {"mode": "none"}}')
    give_away(root)
    home = Home(root.parent / "home")
    home.root.mkdir()
    registry = Registry(home)
    registry.update(lambda entries: (*entries, RepoEntry(name="served", path=str(root / served))))
    with pytest.raises(CodeButlerError, match="agents may write"):
        looked_at(registry, home, planned(root, "inner", "outer/inner", "key", 0.0))
    assert looked_at(registry, home, planned(root, "next", "outer-2", "key", 0.0)) == {}


def test_a_password_in_an_address_is_refused_and_not_repeated(root: Path) -> None:
    for url in ("https://ana:geheim@example.org/a", "https://geheim@example.org/a"):
        with pytest.raises(CodeButlerError, match="revoke it") as refused:
            planned(root, "shop", url, "key", 0.0)
        assert "geheim" not in str(refused.value)


def test_what_git_says_of_a_password_is_not_told() -> None:
    said = "fatal: Authentication failed for 'https://ana:geheim@example.org/a'"
    assert "geheim" not in reason(said)
    assert "geheim" not in reason("fatal: geheim")
    assert Address("https", "ana:geheim@", "example.org", "a").shown == "example.org/a"


def test_nothing_of_somebody_else_is_taken_back(root: Path) -> None:
    making = planned(root, "shop", "", "key", 0.0)
    Path(making.draft).mkdir()
    (theirs := root / "shop").mkdir()
    (theirs / "work").write_text("theirs")
    with pytest.raises(CodeButlerError, match="somebody else"):
        clear_draft(making)
    take_back(making)
    assert (theirs / "work").read_text() == "theirs"
    assert not is_moved(making)
    with pytest.raises(CodeButlerError, match="already exists"):
        planned(root, "shop", "", "other", 0.0)


async def test_a_long_clone_says_that_it_goes_on(
    root: Path, trap: Path, owner: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    ssh, gate, clock = Path(owner()["HOME"]) / "ssh", tmp_path / "gate", ManualClock()
    os.mkfifo(gate)
    give_away(gate)
    ssh.write_text(ssh.read_text().replace("exec", f"read go < {gate}\nexec"))
    address = address_in(URL)
    assert address is not None
    heard = asyncio.Event()

    async def told(progress: str) -> None:
        heard.set()

    cloning = asyncio.create_task(
        FreshCheckout(root, owner(), PLENTY, clock).clone(URL, address, root / "slow", told)
    )
    async with asyncio.timeout(30):
        while not heard.is_set():
            await asyncio.sleep(0.01)  # git is another process
            await clock.advance(1)
    assert not cloning.done()
    await asyncio.to_thread(gate.write_text, "go\n")
    async with asyncio.timeout(30):
        await cloning
    assert (root / "slow" / "a.txt").exists()
