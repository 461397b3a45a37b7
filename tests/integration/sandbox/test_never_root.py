"""Whoever starts it, no program is root: as the kernel tells it outside, behind each kind of walls and without any."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.sandbox.process import AgentProcess
from codebutler_worker.sandbox.select import NoSandbox
from tests.containers import attack
from tests.ordinary import give_away
from tests.programs import require

OWNER = 4321
OURS = {"sh", "bwrap"}


@pytest.fixture(params=["none", "bwrap", pytest.param("docker", marks=pytest.mark.root)])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    if request.param == "none":
        yield NoSandbox()
    elif request.param == "bwrap":
        yield BwrapSandbox(program=require("bwrap"))
    else:
        docker = DockerSandbox(host=request.getfixturevalue("docker_host"))
        yield docker
        await docker.close()


@pytest.fixture
def policy(git_repo: Path, tmp_path: Path) -> SandboxPolicy:
    (home := tmp_path / "home").mkdir()
    give_away(home)
    env = {"PATH": "/usr/bin:/bin"}
    return SandboxPolicy(workdir=git_repo, home=home, env=env, network="none", conversation="C1:1.1")


def statuses(mark: str) -> list[dict[str, str]]:
    """What the kernel says of each process with ``mark`` among its arguments: proc_pid_status(5)."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or mark not in (entry / "cmdline").read_text(errors="replace"):
                continue
            lines = (entry / "status").read_text().splitlines()
        except OSError:
            continue  # it ended while we looked
        found.append({key: value.strip() for key, _, value in (line.partition(":") for line in lines)})
    return [status for status in found if status["Name"] in OURS]


@pytest.mark.root
async def test_the_kernel_knows_it_as_the_owner_without_groups_or_powers(
    sandbox: Sandbox, policy: SandboxPolicy
) -> None:
    give_away(policy.workdir, OWNER)
    os.chown(policy.workdir, OWNER, 0)  # a group of root's is not taken along
    mark = secrets.token_hex(8)
    launch = sandbox.wrap(("sh", "-c", f"echo up; cat; : {mark}"), policy)
    async with await AgentProcess(launch).start() as process:
        assert await anext(process.lines()) == b"up"
        seen = statuses(mark)
    for status in seen:
        assert status["Uid"].split() == status["Gid"].split() == [str(OWNER)] * 4, status
        assert set(status["Groups"].split()) <= {str(OWNER)}
    # What it starts is called the same until it has become another program.
    programs = [status for status in seen if status["Name"] == "sh"]
    assert programs
    for program in programs:
        assert {name: program[name] for name in program if name.startswith("Cap")} == dict.fromkeys(
            ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16
        )
        assert program["NoNewPrivs"] == "1"


@pytest.mark.root
async def test_what_is_roots_in_the_repository_is_kept_by_its_ownership_alone(
    sandbox: Sandbox, policy: SandboxPolicy
) -> None:
    (kept := policy.workdir / "roots").mkdir()
    (file := kept / "file").write_text("root's")
    for try_ in ("echo x >> roots/file", "rm -f roots/file", "touch roots/x", "chmod 666 roots/file"):
        code, _ = await attack(sandbox, policy, try_)
        assert code != 0, try_
    assert [path.name for path in kept.iterdir()] == ["file"]
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("root's", 0o644)


@pytest.mark.root
def test_nothing_starts_in_roots_own_repository_and_one_line_says_how(
    sandbox: Sandbox, policy: SandboxPolicy
) -> None:
    os.chown(policy.workdir, 0, 0)
    with pytest.raises(SandboxUnavailableError, match=f"chown -R 1000:1000 {policy.workdir}") as caught:
        sandbox.wrap(("true",), policy)
    assert "\n" not in str(caught.value)


@pytest.mark.root
@pytest.mark.parametrize("sandbox", ["none", "bwrap"], indirect=True)
def test_a_repository_that_its_owner_cannot_reach_is_refused_in_one_line(
    sandbox: Sandbox, policy: SandboxPolicy, tmp_path: Path
) -> None:
    (barrier := tmp_path / "barrier").mkdir(mode=0o700)
    policy.workdir.rename(barrier / "repo")
    away = SandboxPolicy(workdir=barrier / "repo", home=policy.home, env=policy.env)
    with pytest.raises(SandboxUnavailableError, match=rf"user 1000, .*chmod o\+x {barrier}") as caught:
        sandbox.wrap(("true",), away)
    assert "\n" not in str(caught.value)
    barrier.chmod(0o711)
    sandbox.wrap(("true",), away)


def test_root_where_there_is_no_other_user_is_refused_in_one_line() -> None:
    tried = "from codebutler_worker.sandbox.port import trial_directories\nwith trial_directories(): pass"
    command = (str(require("unshare")), "--user", "--map-root-user", sys.executable, "-c", tried)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "agents do not run as root: run CodeButler as an ordinary user"
    )
