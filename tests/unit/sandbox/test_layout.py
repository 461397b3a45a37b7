"""The walls as arguments."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.git_repo import Owner
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.bwrap import bwrap_argv
from codebutler_worker.sandbox.checkout import Checkout
from codebutler_worker.sandbox.system import Inside, SystemLayout

REPO = Path("/home/ann/repo")
SYSTEM = SystemLayout(
    uid=1000,
    gid=1000,
    bwrap=Path("/usr/bin/bwrap"),
    setpriv=Path("/usr/bin/setpriv"),
    roots=(Path("/usr"), Path("/etc")),
    links=((Path("/bin"), "usr/bin"),),
    masked_files=(Path("/etc/shadow"),),
    resolver=Path("/run/systemd/resolve/stub-resolv.conf"),
)
CHECKOUT = Checkout(
    root=REPO,
    owner=Owner(1000, 1000),
    pinned=(REPO / ".git",),
    fixed=(REPO / ".git/hooks", REPO / ".git/config"),
    private=REPO / ".codebutler",
    shared=(REPO / ".codebutler/files",),
)
INSIDE = Inside(home=Path("/home/ann"))


def mounts(argv: tuple[str, ...]) -> list[str]:
    """The destinations in the order in which they are mounted."""
    words = list(argv[: argv.index("--chdir")])
    two, one = ("--bind", "--ro-bind", "--symlink"), ("--tmpfs", "--remount-ro", "--dev", "--proc")
    found = []
    for at, word in enumerate(words):
        if word in two:
            found.append(words[at + 2])
        elif word in one:
            found.append(words[at + 1])
    return found


def test_what_covers_comes_after_what_it_covers() -> None:
    order = mounts(bwrap_argv(("true",), INSIDE, CHECKOUT, SYSTEM))
    inner = [str(REPO), f"{REPO}/.git", f"{REPO}/.git/config", f"{REPO}/.git/hooks", f"{REPO}/.codebutler"]
    expected = ["/etc", "/etc/shadow", "/tmp", "/home/ann", *inner, f"{REPO}/.codebutler/files", "/"]
    assert all(order.index(before) < order.index(after) for before, after in pairwise(expected))


def test_what_lies_in_memory_has_a_size() -> None:
    argv = bwrap_argv(("true",), replace(INSIDE, scratch_bytes=4096), CHECKOUT, SYSTEM)
    writable = [
        argv[at + 1] for at, word in enumerate(argv) if word == "--tmpfs" and argv[at - 2] == "--size"
    ]
    assert writable == ["/dev/shm", "/tmp", "/run", "/var/tmp", "/home/ann"]
    every = {argv[at + 1] for at, word in enumerate(argv) if word in ("--tmpfs", "--dev")}
    assert every - set(writable) <= {argv[at + 1] for at, word in enumerate(argv) if word == "--remount-ro"}


def test_git_is_pinned_and_what_it_runs_is_read_only() -> None:
    argv = " ".join(bwrap_argv(("true",), INSIDE, CHECKOUT, SYSTEM))
    assert f"--bind {REPO}/.git {REPO}/.git " in argv
    assert f"--ro-bind {REPO}/.git/hooks {REPO}/.git/hooks " in argv
    assert f"--tmpfs {REPO}/.codebutler --bind {REPO}/.codebutler/files" in argv


def test_what_git_may_track_has_a_place_of_its_own_to_lie_in() -> None:
    tracking = replace(CHECKOUT, index=REPO / ".git/index")
    argv = " ".join(bwrap_argv(("true",), replace(INSIDE, scratch_bytes=4096), tracking, SYSTEM))
    assert f"--size 4096 --tmpfs {REPO}/.codebutler --bind {REPO}/.codebutler/files" in argv
    assert f"--remount-ro {REPO}/.codebutler" not in argv


def test_the_command_comes_last_behind_a_double_dash() -> None:
    argv = bwrap_argv(("--evil", "--bind", "/"), INSIDE, CHECKOUT, SYSTEM)
    assert argv[-6:] == ("--chdir", str(REPO), "--", "--evil", "--bind", "/")


def test_only_a_terminal_of_its_own_may_be_controlled() -> None:
    assert "--new-session" in bwrap_argv(("true",), INSIDE, CHECKOUT, SYSTEM)
    own = bwrap_argv(("true",), replace(INSIDE, own_terminal=True), CHECKOUT, SYSTEM)
    assert "--new-session" not in own


def test_every_namespace_is_new_and_the_network_only_when_off() -> None:
    shared = bwrap_argv(("true",), INSIDE, CHECKOUT, SYSTEM)
    assert {"--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session"} <= set(
        shared
    )
    assert "--unshare-net" not in shared
    assert str(SYSTEM.resolver) in shared
    alone = bwrap_argv(("true",), replace(INSIDE, network="none"), CHECKOUT, SYSTEM)
    assert "--unshare-net" in alone
    assert str(SYSTEM.resolver) not in alone


def test_an_ordinary_user_stays_who_he_is() -> None:
    argv = bwrap_argv(("true",), INSIDE, CHECKOUT, SYSTEM)
    assert argv[0] == "/usr/bin/bwrap"
    assert "--uid" not in argv


def test_root_starts_nothing_on_roots_repository_and_says_how() -> None:
    with pytest.raises(SandboxUnavailableError, match=f"chown -R 1000:1000 {REPO}") as caught:
        bwrap_argv(("true",), INSIDE, replace(CHECKOUT, owner=Owner(0, 0)), replace(SYSTEM, uid=0, gid=0))
    assert "\n" not in str(caught.value)


def test_root_on_somebodys_repository_becomes_that_somebody() -> None:
    argv = bwrap_argv(("true",), INSIDE, CHECKOUT, replace(SYSTEM, uid=0, gid=0))
    assert argv[: argv.index("--") + 2] == (
        "/usr/bin/setpriv",
        "--reuid=1000",
        "--regid=1000",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "--no-new-privs",
        "--",
        "/usr/bin/bwrap",
    )
    assert "--uid" not in argv


def test_root_without_setpriv_is_refused() -> None:
    with pytest.raises(SandboxUnavailableError, match="setpriv"):
        bwrap_argv(("true",), INSIDE, CHECKOUT, replace(SYSTEM, uid=0, setpriv=None))


def test_a_linked_program_below_the_home_keeps_its_name() -> None:
    link, real = Path("/home/ann/.local/bin/tool"), Path("/home/ann/.local/share/tool/1")
    argv = " ".join(bwrap_argv(("true",), replace(INSIDE, readable=((link, real),)), CHECKOUT, SYSTEM))
    assert f"--ro-bind {real} {real} --symlink {real} {link}" in argv


def test_system_programs_need_nothing() -> None:
    program = (Path("/bin/sh"), Path("/usr/bin/dash"))
    assert bwrap_argv(("true",), replace(INSIDE, readable=(program,)), CHECKOUT, SYSTEM) == bwrap_argv(
        ("true",), INSIDE, CHECKOUT, SYSTEM
    )


def test_hidden_directories_are_emptied_where_they_show() -> None:
    hidden = (Path("/etc/butler"), REPO / "state", Path("/srv/unseen"))
    order = mounts(bwrap_argv(("true",), replace(INSIDE, hidden=hidden), CHECKOUT, SYSTEM))
    assert order.index("/etc") < order.index("/etc/butler")
    assert order.index(str(REPO)) < order.index(f"{REPO}/state")
    assert "/srv/unseen" not in order


@pytest.mark.parametrize(
    ("root", "inside"),
    [
        (Path("/"), INSIDE),
        (Path("/home"), INSIDE),
        (Path("/home/ann"), INSIDE),
        (REPO, Inside(home=Path("/"))),
        (REPO, replace(INSIDE, home_paths=(REPO.parent / "repo",))),
    ],
)
def test_what_would_open_too_much_is_refused(root: Path, inside: Inside) -> None:
    with pytest.raises(SandboxUnavailableError):
        bwrap_argv(("true",), inside, replace(CHECKOUT, root=root), SYSTEM)


def test_the_filter_of_system_calls_is_read_from_its_descriptor() -> None:
    argv = bwrap_argv(("true",), replace(INSIDE, filter_fd=9), CHECKOUT, SYSTEM)
    assert "--seccomp 9 " in " ".join(argv[: argv.index("--")])
    assert "--seccomp" not in bwrap_argv(("true",), INSIDE, CHECKOUT, SYSTEM)
