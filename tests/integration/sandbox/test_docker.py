"""Containers, with a real daemon: what they are made of, whom they serve, and that nothing outlives its turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.cgroups import ResourceLimits
from codebutler_worker.sandbox.containers import MISSING, OWNER, Docker
from codebutler_worker.sandbox.docker import DEFAULT, DockerSandbox, profile
from codebutler_worker.sandbox.port import SandboxPolicy
from codebutler_worker.sandbox.process import AgentProcess
from codebutler_worker.sandbox.pty import PtyProcess
from codebutler_worker.sandbox.select import select_sandbox
from tests.containers import attack
from tests.dockerd import docker, made_by
from tests.ordinary import give_away

ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
async def sandbox(docker_host: str) -> AsyncIterator[DockerSandbox]:
    sandbox = DockerSandbox(host=docker_host)
    yield sandbox
    await sandbox.close()
    assert running(docker_host) == []


@pytest.fixture
def policy(tmp_path: Path, git_repo: Path) -> SandboxPolicy:
    (tmp_path / "home").mkdir()
    give_away(tmp_path)
    return SandboxPolicy(
        workdir=git_repo, home=tmp_path / "home", env=ENV, network="none", conversation="C1:1.1"
    )


def running(host: str) -> list[str]:
    return made_by(host, os.getpid())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.05)


async def test_a_container_is_made_as_promised(
    sandbox: DockerSandbox, policy: SandboxPolicy, docker_host: str
) -> None:
    await attack(sandbox, policy, "true")
    [made] = json.loads(docker(docker_host, "inspect", *running(docker_host)))
    host, config = made["HostConfig"], made["Config"]
    assert (host["ReadonlyRootfs"], host["CapDrop"], host["CapAdd"]) == (True, ["ALL"], None)
    privileges, calls = host["SecurityOpt"]
    assert (privileges, calls.partition("=")[0]) == ("no-new-privileges", "seccomp")
    assert json.loads(calls.partition("=")[2]) == json.loads(profile())
    assert (host["PidsLimit"], host["NanoCpus"], host["Memory"]) == (128, 10**9, 512 * 2**20)
    assert (host["NetworkMode"], host["Privileged"], host["PidMode"]) == ("none", False, "")
    assert (config["User"], config["WorkingDir"]) == ("1000:1000", "/workspace")
    assert policy.workdir.stat().st_uid == 1000


async def test_in_anothers_repository_the_user_is_that_other(
    sandbox: DockerSandbox, policy: SandboxPolicy, tmp_path: Path
) -> None:
    give_away(tmp_path, 4321)
    assert await attack(sandbox, policy, "id -u; touch made") == (0, "4321\n")
    assert (policy.workdir / "made").stat().st_uid == 4321


async def test_a_conversation_keeps_its_container_and_shares_it_with_none(
    sandbox: DockerSandbox, policy: SandboxPolicy, docker_host: str
) -> None:
    other = replace(policy, conversation="C1:2.2")
    await attack(sandbox, policy, "echo mine > /tmp/kept")
    assert await attack(sandbox, policy, "cat /tmp/kept") == (0, "mine\n")
    assert (await attack(sandbox, other, "cat /tmp/kept"))[0] == 1
    assert len(running(docker_host)) == 2
    await sandbox.release(policy.conversation)
    assert len(running(docker_host)) == 1
    assert (await attack(sandbox, policy, "cat /tmp/kept"))[0] == 1


async def test_two_programs_at_once_do_not_share_one(
    sandbox: DockerSandbox, policy: SandboxPolicy, docker_host: str
) -> None:
    async with (
        await AgentProcess(sandbox.wrap(("sleep", "1000"), policy)).start(),
        await AgentProcess(sandbox.wrap(("sleep", "1000"), policy)).start(),
    ):
        assert len(running(docker_host)) == 2
    assert running(docker_host) == []


async def test_what_a_conversation_no_longer_needs_goes_in_time(
    docker_host: str, policy: SandboxPolicy
) -> None:
    sandbox = DockerSandbox(host=docker_host, idle_s=0.2)
    await attack(sandbox, policy, "true")
    await until(lambda: running(docker_host) == [])
    assert (await attack(sandbox, policy, "true"))[0] == 0
    await sandbox.close()


async def test_what_is_shared_is_at_hand_in_a_private_directory_that_nobody_else_may_enter(
    sandbox: DockerSandbox, policy: SandboxPolicy
) -> None:
    private = policy.workdir / ".codebutler"
    (private / "files").mkdir(parents=True)
    (private / "files" / "in.txt").write_text("sent\n")
    give_away(private)
    for owner in (policy.workdir.stat().st_uid, os.geteuid()):
        private.chmod(0o700)
        os.chown(private, owner, owner)
        for place in (policy.workdir, "/workspace"):
            script = f"cat {place}/.codebutler/files/in.txt && touch {place}/.codebutler/x"
            assert await attack(sandbox, policy, script) == (0, "sent\n")
            assert not (private / "x").exists()
        await sandbox.release(policy.conversation)


async def test_the_workspace_is_the_repository_and_as_well_protected(
    sandbox: DockerSandbox, policy: SandboxPolicy
) -> None:
    script = "cd /workspace && echo x > made && echo x >> .git/config; echo x > .codebutler/y; mv .git .git2"
    _, said = await attack(sandbox, policy, script)
    assert "cannot create .git/config: Read-only file system" in said
    assert "Device or resource busy" in said
    assert (policy.workdir / "made").exists()
    assert not (policy.workdir / ".codebutler" / "y").exists()


def track(repo: Path, name: str) -> None:
    (repo / name).parent.mkdir()
    (repo / name).write_text("public")
    git = ["git", "-c", "safe.directory=*", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for words in (["add", name], ["commit", "-qm", "Ours"]):
        subprocess.run([*git, *words], cwd=repo, check=True)
    give_away(repo)


async def test_what_git_tracks_in_the_private_directory_is_there_and_no_commit_takes_it_away(
    sandbox: DockerSandbox, policy: SandboxPolicy
) -> None:
    track(policy.workdir, ".codebutler/config.json")
    identity = "-c user.name=t -c user.email=t@example.invalid"
    commit = f"git status --porcelain; echo more >> README.md; git {identity} commit -qam more; git status --porcelain"
    for place in (policy.workdir, "/workspace"):
        assert await attack(sandbox, policy, f"cd {place}; {commit}; git ls-files .codebutler") == (
            0,
            ".codebutler/config.json\n",
        )


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_nothing_outlives_a_client_that_dies(
    sandbox: DockerSandbox, policy: SandboxPolicy, docker_host: str, end: signal.Signals
) -> None:
    script = "trap '' TERM HUP; setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & echo up; sleep 1000"
    async with await AgentProcess(sandbox.wrap(("sh", "-c", script), policy)).start() as process:
        assert await anext(process.lines()) == b"up"
        [container] = running(docker_host)
        async with asyncio.timeout(30):
            while len(docker(docker_host, "top", container).splitlines()) != 6:  # noqa: ASYNC110 - docker tells nobody
                await asyncio.sleep(0.1)
        process._signal(end)
        await process.wait()
    assert running(docker_host) == []


async def test_a_daemon_dies_with_its_program(
    sandbox: DockerSandbox, policy: SandboxPolicy, docker_host: str
) -> None:
    script = "setsid sleep 1000 > /dev/null 2>&1 & echo started"
    assert await attack(sandbox, policy, script) == (0, "started\n")
    assert running(docker_host) == []


WORKER = """
import asyncio, sys
from pathlib import Path
from codebutler_worker.sandbox.process import AgentProcess
from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.sandbox.port import SandboxPolicy

async def main(host, workdir, home):
    policy = SandboxPolicy(workdir=Path(workdir), home=Path(home), env={"PATH": "/usr/bin:/bin"}, network="none")
    launch = DockerSandbox(host=host).wrap(("sh", "-c", "echo up; sleep 1000"), policy)
    async with await AgentProcess(launch).start() as process:
        print((await anext(process.lines())).decode(), flush=True)
        await asyncio.sleep(1000)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("alone", [True, False])
async def test_nothing_outlives_a_worker_that_is_killed(
    docker_host: str, policy: SandboxPolicy, *, alone: bool
) -> None:
    """Or with all that it has started, as systemd kills a service."""
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER, docker_host, str(policy.workdir), str(policy.home)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert worker.stdout is not None
    assert await worker.stdout.readline() == b"up\n"
    assert len(made_by(docker_host, worker.pid)) == 1
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    assert children
    worker.kill()
    for child in () if alone else children:
        # Without its worker it may have ended by itself.
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    await worker.wait()
    await until(lambda: made_by(docker_host, worker.pid) == [])


async def test_the_next_worker_sweeps_what_a_dead_one_left(sandbox: DockerSandbox, docker_host: str) -> None:
    space = Path("/proc/self/ns/pid").stat().st_ino
    owners = [f"codebutler-{space}-1-0-dead", f"codebutler-{space + 1}-1-0-elsewhere", "some-bo-dy"]
    for owner in owners:
        docker(
            docker_host, "create", f"--label={OWNER}={owner}", f"--name={owner}", "codebutler-runner", "true"
        )
    assert await sandbox.sweep() >= 1
    left = docker(docker_host, "ps", "-a", "--format", "{{.Names}}").split()
    assert owners[0] not in left
    assert {*owners[1:]} <= {*left}
    docker(docker_host, "rm", *owners[1:])


async def test_who_takes_too_much_is_stopped_and_told(docker_host: str, policy: SandboxPolicy) -> None:
    sandbox = DockerSandbox(host=docker_host, limits=replace(DEFAULT, memory_bytes=64 * 2**20, processes=20))
    for script, limit in (
        ("python3 -c 'bytearray(200 * 2**20)'", "64 MB of memory (sandbox.memoryMb)"),
        ("for i in $(seq 40); do sleep 100 & done; wait", "20 processes (sandbox.processes)"),
    ):
        async with await AgentProcess(sandbox.wrap(("sh", "-c", script), policy)).start() as process:
            process.close_stdin()
            await until(lambda process=process: bool(process.limit_hit))  # type: ignore[misc]  # defaults of a lambda
            assert limit in process.limit_hit
    assert running(docker_host) == []
    await sandbox.close()


async def test_a_terminal_is_one_inside_too(sandbox: DockerSandbox, policy: SandboxPolicy) -> None:
    said = bytearray()
    script = "test -t 0 || exit 9; trap 'echo caught; exit 3' INT; tty; sleep 1000 & wait"
    launch = sandbox.wrap(("sh", "-c", script), replace(policy, own_terminal=True))
    async with await PtyProcess(launch, lambda data, *_: said.extend(data)).start() as process:
        await until(lambda: b"/dev/pts/" in said)
        await process.write(b"\x03")
        await until(lambda: b"caught" in said)
        await until(lambda: process.returncode is not None)
        assert process.returncode == 3


def test_root_is_told_how_to_go_on(docker_host: str, git_repo: Path, tmp_path: Path) -> None:
    os.chown(git_repo, 0, 0)
    policy = SandboxPolicy(workdir=git_repo, home=tmp_path / "home", env=ENV)
    with pytest.raises(SandboxUnavailableError, match=f"chown -R 1000:1000 {git_repo}"):
        DockerSandbox(host=docker_host).wrap(("true",), policy)


async def test_without_a_daemon_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(
        SandboxUnavailableError, match=r"docker does not work here.*; or, to run agents without"
    ):
        await select_sandbox("docker", trusted=True)


async def test_without_the_image_it_is_said_how_to_build_it(tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text(
        '#!/bin/sh\necho "docker: Error response from daemon: No such image: x." >&2; exit 125\n'
    )
    client.chmod(0o755)
    with pytest.raises(SandboxUnavailableError) as caught:
        await Docker(client, "unix:///none").run("run")
    assert str(caught.value) == MISSING


async def test_no_limit_is_set_where_none_is_wanted(docker_host: str, policy: SandboxPolicy) -> None:
    sandbox = DockerSandbox(host=docker_host, limits=ResourceLimits())
    enclose = sandbox.wrap(("true",), policy).enclose
    assert isinstance(enclose, partial)
    assert not any(word.startswith(("--memory", "--cpus", "--pids")) for word in enclose.args[0].options)
