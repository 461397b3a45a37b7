"""What git's configuration points at in a work tree, and sockets there, behind each kind of walls.

Rows of docs/explanation/security.md, as those in test_attacks.py.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.checkout import inspect_checkout
from tests.integration.sandbox.attacker import Attacker
from tests.ordinary import give_away, give_repository_away

CONNECT = """python3 - <<'EOF'
import socket
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(5)
connection.connect({address!r})
EOF"""


def configure(attacker: Attacker, *settings: tuple[str, str]) -> None:
    """As the repository's owner does."""
    for key, value in settings:
        git(attacker.repo, "config", key, value)
    give_repository_away(attacker.repo)


def git(repo: Path, *words: str) -> None:
    """As somebody outside runs it."""
    own = ("-c", "safe.directory=*", "-c", "user.name=o", "-c", "user.email=o@example.com")
    subprocess.run(["git", *own, *words], cwd=repo, check=True, capture_output=True)


def write(path: Path, text: str, mode: int = 0o755) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def hijack(attacker: Attacker, *places: str) -> list[str]:
    """Ways to have something else run in one of ``places``."""
    found = []
    for place in places:
        top = place.split("/")[0]
        evil = f"printf '#!/bin/sh\\ntouch {attacker.repo}/pwned\\n'"
        found += [
            f"{evil} > {place}",
            f"{evil} > x && chmod +x x && mv -f x {place}",
            f"test -e {place} && rm -rf {place} && test ! -e {place}",
            f"chmod 777 {place} && mkdir -p y && mv y {place}/..y",
            f"mv {top} {top}.old && mkdir -p $(dirname {place}) && {evil} > {place}",
            f"ln -sfT /tmp {top}",
            f"umount {place}",
        ]
    return found


async def unharmed(attacker: Attacker, *places: str) -> None:
    """No way works, the agent goes on working, and what the owner does next starts nothing of the agent's."""
    await attacker.fails(*hijack(attacker, *places))
    code, said = await attacker.tries(
        "echo work > done && mkdir -p src && mv done src/ && git add src && "
        "git -c user.name=a -c user.email=a@example.com commit -qm work"
    )
    assert code == 0, said
    write(attacker.repo / "by-the-owner", "x", 0o644)
    git(attacker.repo, "add", "by-the-owner")
    git(attacker.repo, "commit", "-qm", "the owner's")
    assert not (attacker.repo / "pwned").exists()


@pytest.mark.parametrize(
    ("path", "places"),
    [
        (".husky", (".husky/pre-commit", ".husky/commit-msg")),
        (".husky/_", (".husky/_/pre-commit", ".husky/pre-commit", ".husky/_/h")),
        ("./tools/git/hooks/", ("tools/git/hooks/pre-commit", "tools/git/hooks/post-commit")),
        ("{repo}/.githooks", (".githooks/pre-commit",)),
    ],
)
async def test_a30_hooks_in_the_work_tree_stay_the_owners(
    attacker: Attacker, path: str, places: tuple[str, ...]
) -> None:
    for place in places:
        write(attacker.repo / place, "#!/bin/sh\nexit 0\n")
    configure(attacker, ("core.hooksPath", path.format(repo=attacker.repo)))
    await unharmed(attacker, *places)


async def test_a30_hooks_that_are_not_there_cannot_be_made(attacker: Attacker) -> None:
    configure(attacker, ("core.hooksPath", "tools/.githooks"))
    await unharmed(attacker, "tools/.githooks/pre-commit")
    assert (attacker.repo / "tools" / ".githooks").stat().st_uid == attacker.repo.stat().st_uid


async def test_a30_a_hook_that_is_a_link_is_followed(attacker: Attacker) -> None:
    write(attacker.repo / "scripts" / "check", "#!/bin/sh\nexit 0\n")
    (attacker.repo / ".githooks").mkdir()
    (attacker.repo / ".githooks" / "pre-commit").symlink_to("../scripts/check")
    configure(attacker, ("core.hooksPath", ".githooks"))
    await unharmed(attacker, "scripts/check")
    (attacker.repo / "scripts" / "check").unlink()
    with pytest.raises(SandboxUnavailableError, match=r"core\.hookspath .*scripts/check, which is not there"):
        await attacker.tries("true")


@pytest.mark.parametrize("key", ["include.path", "includeIf.onbranch:elsewhere.path"])
async def test_a30_configuration_in_the_work_tree_stays_the_owners(attacker: Attacker, key: str) -> None:
    """Also what it includes in turn, and where its condition does not hold: an agent may change the branch."""
    write(attacker.repo / "conf" / "team", "[include]\npath = deeper\n[user]\nname = t\n", 0o644)
    write(attacker.repo / "conf" / "deeper", "[core]\nhooksPath = .githooks\n", 0o644)
    configure(attacker, (key, "../conf/team"))
    await unharmed(attacker, "conf/team", "conf/deeper", ".githooks/pre-commit")
    (attacker.repo / "conf" / "deeper").unlink()
    with pytest.raises(SandboxUnavailableError, match=r"include\.path in .*conf/deeper, which is not there"):
        await attacker.tries("true")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.fsmonitor", "tools/run"),
        ("core.pager", "./tools/run | cat"),
        ("filter.x.clean", "sh tools/run %f"),
        ("diff.x.textconv", "{repo}/tools/run"),
        ("merge.x.driver", "tools/run %O %A %B"),
        ("alias.x", "!cd . && ./tools/run"),
        ("credential.helper", "!tools/run"),
        ("gpg.program", "./tools/run"),
        ("core.sshCommand", "ssh -F tools/run"),
    ],
)
async def test_a30_a_program_in_the_work_tree_that_git_starts_stays_the_owners(
    attacker: Attacker, key: str, value: str
) -> None:
    write(attacker.repo / "tools" / "run", "#!/bin/sh\ncat\n")
    configure(attacker, (key, value.format(repo=attacker.repo)))
    await unharmed(attacker, "tools/run")
    checkout = inspect_checkout(attacker.repo)
    assert checkout.pointed == (attacker.repo / "tools" / "run",)


async def test_a30_the_owners_own_configuration_counts_too(
    attacker: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = attacker.base / "home"
    write(home / ".gitconfig", "[core]\nhooksPath = .githooks\n", 0o644)
    give_away(home / ".gitconfig")
    monkeypatch.setenv("HOME", str(home))
    await unharmed(attacker, ".githooks/pre-commit")


async def test_a30_a_worktrees_own_configuration_counts_too(attacker: Attacker) -> None:
    other = attacker.base / "other"
    git(attacker.repo, "worktree", "add", "-q", "--detach", str(other))
    git(attacker.repo, "config", "extensions.worktreeConfig", "true")
    git(other, "config", "--worktree", "core.hooksPath", f"{attacker.repo}/.githooks")
    git(other, "config", "--worktree", "core.pager", "tools/less")  # in the other tree
    give_repository_away(attacker.repo)
    await unharmed(attacker, ".githooks/pre-commit")
    assert inspect_checkout(attacker.repo).pointed == (attacker.repo / ".githooks",)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.pager", "$HOME/bin/pager"),
        ("core.editor", "TERM=x/y vim"),
        ("core.sshCommand", "ssh -o ControlPath=~/.ssh/%C"),
        ("filter.lfs.clean", "git-lfs clean -- %f"),
        ("alias.x", "!rm -rf ./build > out/log 2>&1; cat linked/y README.md/z"),
        ("alias.x", "log -- src/gone"),
        ("diff.x.command", "x" * 300),
        ("remote.origin.url", "./gone"),
        ("branch.a/b.merge", "refs/heads/a/b"),
        ("credential.https://github.com.helper", "!/usr/bin/gh auth git-credential"),
    ],
)
async def test_everyday_configuration_stops_nobody(attacker: Attacker, key: str, value: str) -> None:
    (attacker.repo / "linked").symlink_to("src")
    configure(attacker, (key, value))
    assert inspect_checkout(attacker.repo).pointed == ()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("core.hooksPath", ".", "where agents work"),
        ("core.hooksPath", ".git", "where agents work"),
        ("core.hooksPath", ".codebutler/files/hooks", "where agents work"),
        ("core.fsmonitor", "tools/gone", "which is not there"),
        ("core.fsmonitor", "README.md/gone", "which is not there"),
        ("alias.x", "!f() { ./gone; }; f", "which is not there"),
        ("core.hooksPath", "linked/hooks", "symbolic link"),
        ("core.hooksPath", "README.md/hooks", "cannot be used as a directory"),
        ("include.path", "../gone", "which is not there"),
    ],
)
async def test_a30_what_cannot_be_pinned_stops_the_next_start(
    attacker: Attacker, key: str, value: str, said: str
) -> None:
    (attacker.repo / "linked").symlink_to("src")
    configure(attacker, (key, value))
    with pytest.raises(SandboxUnavailableError, match=said) as refused:
        await attacker.tries("true")
    assert "\n" not in str(refused.value)


async def test_a30_what_lies_in_what_is_pinned_is_no_way_to_write_there(attacker: Attacker) -> None:
    places = (".husky/pre-commit", ".husky/lib/deep/run", ".git/hooks/lib/run")
    for place in places:
        write(attacker.repo / place, "#!/bin/sh\nexit 0\n")
    (attacker.repo / ".husky" / "tmp").mkdir()
    configure(
        attacker,
        ("core.hooksPath", ".husky"),
        ("core.pager", ".husky/lib/deep/run"),
        ("core.editor", ".git/hooks/lib/run"),
    )
    with listening(attacker.repo, ".husky/tmp/server.sock"):
        await attacker.fails(
            *(f"touch {place}" for place in (".husky/lib/x", ".git/hooks/lib/x", ".husky/tmp/x"))
        )
        await unharmed(attacker, *places)


@contextmanager
def listening(place: Path, name: str) -> Iterator[socket.socket]:
    """A service of the machine that was bound as ``name`` from ``place``."""
    was = Path.cwd()
    os.chdir(place)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        Path(name).chmod(0o777)
        server.listen()
        server.setblocking(False)
        try:
            yield server
        finally:
            os.chdir(was)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (".", "{repo}/tmp/server.sock"),
        ("tmp", "server.sock"),
        (".", "./tmp/server.sock"),
        (".git", "{repo}/.git/fsmonitor--daemon.ipc"),
        (".", "{repo}/.codebutler/files/a b/s.sock"),
    ],
)
async def test_a31_no_socket_in_the_work_tree_answers(attacker: Attacker, place: str, name: str) -> None:
    for directory in ("tmp", ".codebutler/files/a b"):
        (attacker.repo / directory).mkdir()
        give_away(attacker.repo / directory)
    with listening(attacker.repo / place, name.format(repo=attacker.repo)) as server:
        (path,) = (path for path in attacker.repo.rglob("*") if path.is_socket())
        await attacker.fails(
            CONNECT.format(address=str(path)),
            f"mv '{path.parent}' '{path.parent}.old'; "
            + CONNECT.format(address=f"{path.parent}.old/{path.name}"),
            f"mv '{path}' x && " + CONNECT.format(address="x"),
            f"ln '{path}' x && " + CONNECT.format(address="x"),
        )
        with pytest.raises(BlockingIOError):
            server.accept()
        assert path.is_socket()
        path.with_name("second").hardlink_to(path)
        with pytest.raises(SandboxUnavailableError, match="another name"):
            await attacker.tries("true")


async def test_a31_an_agents_own_server_is_reached(attacker: Attacker) -> None:
    serve = "import socket; s=socket.socket(socket.AF_UNIX); s.bind('own.sock'); s.listen()"
    code, said = await attacker.tries(
        f"python3 -c \"{serve}; c=socket.socket(socket.AF_UNIX); c.connect('own.sock')\""
    )
    assert code == 0, said
