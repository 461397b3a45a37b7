"""Attacks on the walls, with the real bubblewrap: what an agent must not reach, and what must not outlive it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.media.files import FILES, save_file
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.port import SandboxPolicy
from codebutler_worker.sandbox.select import select_sandbox
from codebutler_worker.store.opening import prepare_state_dir
from tests.ordinary import give_repository_away
from tests.programs import require
from tests.walls import ended

ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for secret in (".ssh/id_ed25519", ".aws/credentials", ".codebutler/config.json", "other-repo/notes.txt"):
        (home / secret).parent.mkdir(parents=True)
        (home / secret).write_text("the secret")
    return home


@pytest.fixture
def policy(git_repo: Path, home: Path) -> SandboxPolicy:
    private = git_repo / ".codebutler"
    (private / "files").mkdir(parents=True)
    (private / "store.db").write_text("the secret")
    give_repository_away(git_repo)
    return SandboxPolicy(workdir=git_repo, home=home, env=ENV)


@pytest.fixture
def sandbox(home: Path) -> BwrapSandbox:
    return BwrapSandbox(hidden=(home / ".codebutler",), program=require("bwrap"))


async def attack(sandbox: BwrapSandbox, policy: SandboxPolicy, script: str) -> tuple[int, str]:
    """Runs the script inside; its exit code and all it said."""
    return await ended(sandbox.wrap(("sh", "-c", script), policy))


@pytest.mark.parametrize(
    "script",
    [
        "mv .git .git2",
        "rm -rf .git",
        "mv .git/hooks .git/h2",
        "mv .git/config .git/c2",
        "rm -f .git/config",
        "echo '[core]fsmonitor=touch pwned' >> .git/config",
        "git config core.fsmonitor 'touch pwned'",
        "git config core.hooksPath evil",
        "echo 'touch pwned' > .git/hooks/pre-commit",
        "ln -sf /bin/true .git/hooks/pre-commit",
        "umount .git/config",
        "mount -o remount,rw,bind .git/config",
    ],
)
async def test_what_makes_git_run_programs_stays_as_it_is(
    sandbox: BwrapSandbox, policy: SandboxPolicy, script: str
) -> None:
    before = (policy.workdir / ".git" / "config").read_text()
    await attack(sandbox, policy, script)
    assert (policy.workdir / ".git" / "config").read_text() == before
    assert not (policy.workdir / ".git" / "hooks" / "pre-commit").exists()
    host_git = await asyncio.create_subprocess_exec("git", "status", cwd=policy.workdir)
    await host_git.wait()
    assert not (policy.workdir / "pwned").exists()


async def test_missing_hooks_cannot_be_made(sandbox: BwrapSandbox, policy: SandboxPolicy) -> None:
    hooks = policy.workdir / ".git" / "hooks"
    for file in hooks.iterdir():
        file.unlink()
    hooks.rmdir()
    code, _ = await attack(sandbox, policy, "mkdir -p .git/hooks; echo x > .git/hooks/post-checkout")
    assert code != 0
    assert list(hooks.iterdir()) == []


async def test_a_planted_commondir_stops_the_next_start(sandbox: BwrapSandbox, policy: SandboxPolicy) -> None:
    await attack(sandbox, policy, "mkdir evil; echo ../evil > .git/commondir")
    with pytest.raises(SandboxUnavailableError, match="commondir does not belong"):
        sandbox.wrap(("true",), policy)


async def test_no_worktree_configuration_can_be_added_where_git_would_read_it(
    sandbox: BwrapSandbox, policy: SandboxPolicy
) -> None:
    config = policy.workdir / ".git" / "config"
    config.write_text(config.read_text() + "[extensions]\n\tworktreeConfig = true\n")
    code, _ = await attack(sandbox, policy, "echo '[core]fsmonitor=touch pwned' > .git/config.worktree")
    assert code != 0
    assert (policy.workdir / ".git" / "config.worktree").read_text() == ""


async def test_no_private_directory_can_be_made_where_there_is_none(
    sandbox: BwrapSandbox, policy: SandboxPolicy
) -> None:
    private = policy.workdir / ".codebutler"
    shutil.rmtree(private)
    await attack(sandbox, policy, "mkdir -p .codebutler; echo evil > .codebutler/config.json")
    assert list(private.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["~/.ssh/id_ed25519", "~/.aws/credentials", "~/.codebutler/config.json", "~/other-repo/notes.txt",
             ".codebutler/store.db", "/etc/shadow", "/root/.bashrc", "/srv", "/mnt", "/var/log"],
)  # fmt: skip
async def test_secrets_are_not_there(sandbox: BwrapSandbox, policy: SandboxPolicy, path: str) -> None:
    code, said = await attack(sandbox, policy, f"ls {path}/* || cat {path}")
    assert code != 0
    assert "the secret" not in said
    assert "root:" not in said


async def test_the_private_directory_takes_nothing_but_files(
    sandbox: BwrapSandbox, policy: SandboxPolicy
) -> None:
    await attack(sandbox, policy, "echo sent > .codebutler/files/a && echo evil > .codebutler/config.json")
    assert (policy.workdir / ".codebutler" / "files" / "a").read_text() == "sent\n"
    assert not (policy.workdir / ".codebutler" / "config.json").exists()


async def test_no_environment_but_its_own_is_readable(
    sandbox: BwrapSandbox, policy: SandboxPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-very-secret")
    _, said = await attack(sandbox, policy, "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ls /proc")
    assert "PATH=/usr/bin:/bin" in said
    assert "xoxb-very-secret" not in said
    assert str(os.getpid()) not in said.split()


async def test_it_is_nobody_special(sandbox: BwrapSandbox, policy: SandboxPolicy) -> None:
    _, said = await attack(sandbox, policy, "id -u; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status")
    uid, *status = said.split("\n")
    assert uid != "0"
    assert "CapEff:\t0000000000000000" in status
    assert "CapBnd:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status


@pytest.mark.parametrize(
    "script", ["unshare -Ur true", "mount -t tmpfs none /mnt", "kill -9 -1; kill -0 1 && false"]
)
async def test_powers_are_refused(sandbox: BwrapSandbox, policy: SandboxPolicy, script: str) -> None:
    assert (await attack(sandbox, policy, script))[0] != 0


async def test_nothing_outside_can_be_written(
    sandbox: BwrapSandbox, policy: SandboxPolicy, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    _, said = await attack(
        sandbox, policy, f"echo x > {outside}; echo x > /usr/x; echo x > /x; echo x > /tmp/x; ls /tmp"
    )
    assert not outside.exists()
    assert "x" in said.split()


async def test_without_network_even_the_host_itself_is_far(
    sandbox: BwrapSandbox, policy: SandboxPolicy
) -> None:
    require("git")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"git://127.0.0.1:{server.getsockname()[1]}/x"
        code, said = await attack(
            sandbox, replace(policy, network="none"), f"timeout 10 git ls-remote {address}"
        )
        assert code != 0
        assert "unable to connect" in said
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_a_daemon_dies_with_the_wrapper(
    sandbox: BwrapSandbox, policy: SandboxPolicy, end: signal.Signals
) -> None:
    """The daemon holds the other end of stdout: its end of file is its death."""
    script = "trap '' TERM HUP; setsid nohup sh -c 'trap \"\" TERM HUP; echo up >&3; sleep 1000' 3>&1 & wait"
    launch = sandbox.wrap(("sh", "-c", script), policy)
    process = await asyncio.create_subprocess_exec(
        *launch.argv, stdout=asyncio.subprocess.PIPE, cwd=launch.cwd, env=launch.env, start_new_session=True
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"up\n"
    process.send_signal(end)
    async with asyncio.timeout(5):
        assert await process.stdout.read() == b""
        assert await process.wait() != 0


async def test_a_daemon_dies_with_the_program(sandbox: BwrapSandbox, policy: SandboxPolicy) -> None:
    async with asyncio.timeout(10):
        code, said = await attack(sandbox, policy, "setsid nohup sleep 1000 & echo started")
    assert (code, said) == (0, "started\n")


@pytest.mark.parametrize("name", [".git", ".codebutler", ".codebutler/files", ".git/hooks", ".git/config"])
@pytest.mark.parametrize("target", ["/oldroot{outside}", "{outside}", "../outside", "nowhere"])
def test_a_symlinked_destination_is_refused(
    sandbox: BwrapSandbox, policy: SandboxPolicy, tmp_path: Path, name: str, target: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (policy.workdir / name).rename(tmp_path / "moved")
    (policy.workdir / name).symlink_to(target.format(outside=outside))
    with pytest.raises(SandboxUnavailableError, match="symbolic link"):
        sandbox.wrap(("true",), policy)
    assert list(outside.iterdir()) == []


def test_a_git_file_cannot_point_at_another_repository(
    sandbox: BwrapSandbox, policy: SandboxPolicy, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    entry = policy.workdir / ".git" / "worktrees" / "x"
    entry.mkdir(parents=True)
    plain.mkdir()
    asked = replace(policy, workdir=plain)
    for pointer in (policy.workdir / ".git", entry, plain / "own"):
        (plain / ".git").write_text(f"gitdir: {pointer}\n")
        with pytest.raises(SandboxUnavailableError):
            sandbox.wrap(("true",), asked)


def test_a_linked_working_directory_is_refused(
    sandbox: BwrapSandbox, policy: SandboxPolicy, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(policy.workdir)
    with pytest.raises(SandboxUnavailableError, match="symbolic link"):
        sandbox.wrap(("true",), replace(policy, workdir=tmp_path / "link"))


async def test_a_planted_link_shows_nothing_more(sandbox: BwrapSandbox, policy: SandboxPolicy) -> None:
    tool = policy.workdir / "tool"
    tool.symlink_to(policy.home / ".ssh" / "id_ed25519")
    launch = sandbox.wrap((str(tool),), policy)
    assert not any(word.endswith("id_ed25519") for word in launch.argv)


async def test_the_supervisors_home_is_hidden_inside_a_repository(policy: SandboxPolicy) -> None:
    state = policy.workdir / "state"
    state.mkdir()
    (state / "config.json").write_text("the secret")
    sandbox = BwrapSandbox(hidden=(state,), program=require("bwrap"))
    code, said = await attack(sandbox, policy, "cat state/config.json || touch state/x")
    assert code != 0
    assert "the secret" not in said


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Somewhere every user may go, which pytest's own directories are not."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory).resolve()


@pytest.mark.root
async def test_root_acts_as_the_owner_of_the_repository(sandbox: BwrapSandbox, open_directory: Path) -> None:
    repo, home = open_directory / "repo", open_directory / "home"
    repo.mkdir()
    home.mkdir()
    os.chown(repo, 4321, 4321)
    code, said = await attack(
        sandbox, SandboxPolicy(workdir=repo, home=home, env=ENV), "id -u; id -g; touch made"
    )
    assert (code, said) == (0, "4321\n4321\n")
    assert (repo / "made").stat().st_uid == 4321


async def test_auto_is_bubblewrap_where_it_works() -> None:
    require("bwrap")
    assert (await select_sandbox("auto", trusted=False)).name == "bwrap"


async def test_a_bubblewrap_that_does_nothing_fails_the_self_test(tmp_path: Path) -> None:
    for script, said in (
        ("exit 0", "exit code 0"),
        ("echo setting up uid map: denied; exit 1", "uid map: denied"),
    ):
        fake = tmp_path / "bwrap"
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        with pytest.raises(SandboxUnavailableError, match=said):
            await BwrapSandbox(program=fake).self_test()


@pytest.mark.root
async def test_the_owner_gets_at_the_shared_directories_and_at_nothing_beside_them(
    sandbox: BwrapSandbox, open_directory: Path
) -> None:
    repo, home = open_directory / "repo", open_directory / "home"
    repo.mkdir()
    home.mkdir()
    os.chown(repo, 4321, 4321)
    state = prepare_state_dir(repo)
    (state / "config.json").write_text("the secret")
    save_file(repo, FILES, "in.txt", b"sent")
    command = "cat .codebutler/files/in.txt; echo > .codebutler/images/out; cat .codebutler/config.json"
    code, said = await attack(sandbox, SandboxPolicy(workdir=repo, home=home, env=ENV), command)
    assert said.startswith("sent")
    assert code != 0
    assert "the secret" not in said
    assert (state / "images" / "out").stat().st_uid == 4321
