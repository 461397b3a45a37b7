"""More of the battery: what is docker's alone. A container waits for the next program of its conversation, has a first
process beside the agent's, and is made by a daemon that is root and writes files of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler_worker.sandbox.port import Enclose, Enclosure
from codebutler_worker.sandbox.process import AgentProcess
from tests.dockerd import docker, made_by
from tests.integration.sandbox.attacker import SECRET, Attacker
from tests.ordinary import give_away

pytestmark = pytest.mark.parametrize(
    "attacker", [pytest.param("docker", marks=pytest.mark.root)], indirect=True
)


def git(repo: Path, *words: str) -> None:
    """Somebody outside, whose repository it is."""
    subprocess.run(["git", "-c", "safe.directory=*", *words], cwd=repo, check=True)
    give_away(repo / ".git")


def set_until_it_looks_the_same(repo: Path) -> None:
    """Each time a new file; ext4 soon gives one the inode that the first has set free."""
    before = (repo / ".git" / "config").stat().st_ino
    for number in range(20):
        git(repo, "config", "user.name", f"somebody {number}")
        if (repo / ".git" / "config").stat().st_ino == before:
            return


def linked_back(repo: Path) -> None:
    """The very same file again, after its name was gone for a moment."""
    config, kept = repo / ".git" / "config", repo / ".git" / "kept"
    os.link(config, kept)
    config.unlink()
    kept.rename(config)


def hooks_anew(repo: Path) -> None:
    shutil.rmtree(repo / ".git" / "hooks")
    (repo / ".git" / "hooks").mkdir()
    give_away(repo / ".git")


def seen_by_docker(host: str) -> list[dict[str, dict[str, object]]]:
    inspected: list[dict[str, dict[str, object]]] = json.loads(
        docker(host, "inspect", *made_by(host, os.getpid()))
    )
    return inspected


async def test_a44_nothing_of_a_program_stays_in_the_first_process(
    attacker: Attacker, docker_host: str
) -> None:
    """It is of the same user, and outlives every program of the conversation."""
    await attacker.fails(
        "exec 3<>/proc/1/mem",
        "cat /proc/1/environ /proc/1/maps",
        "ls /proc/1/root/",
        "echo x >> /proc/1/fd/1",
        "cat < /proc/1/fd/0",
        "echo 1000 > /proc/1/oom_score_adj",
    )
    [container] = made_by(docker_host, os.getpid())
    await attacker.tries("kill -STOP 1; kill -9 1; kill -15 -1")
    assert await attacker.tries("cat /proc/1/comm") == (0, "cat\n")
    assert made_by(docker_host, os.getpid()) == [container]


@pytest.mark.parametrize("replaced", [set_until_it_looks_the_same, linked_back, hooks_anew])
async def test_a45_what_was_replaced_while_a_container_waits_is_protected_in_the_next_program(
    attacker: Attacker, replaced: Callable[[Path], None]
) -> None:
    for name in ("a", "b", "c"):  # its inode is one that ext4 gives away first
        git(attacker.repo, "config", "user.name", name)
    await attacker.tries("true")
    replaced(attacker.repo)
    config = (attacker.repo / ".git" / "config").read_text()
    await attacker.fails(
        *(
            f"cd {place} && echo '[core]fsmonitor=touch pwned' >> .git/config"
            for place in (attacker.repo, "/workspace")
        ),
        *(f"echo 'touch pwned' > {place}/.git/hooks/pre-commit" for place in (attacker.repo, "/workspace")),
    )
    assert (attacker.repo / ".git" / "config").read_text() == config
    assert list((attacker.repo / ".git" / "hooks").glob("pre-commit")) == []


@dataclass
class Meanwhile:
    """Somebody does something between the container's making and the program's start."""

    real: Enclose
    does: Callable[[], None]

    async def __call__(self, argv: tuple[str, ...]) -> tuple[Enclosure, tuple[str, ...]]:
        enclosed = await self.real(argv)
        self.does()
        return enclosed


async def test_a45_what_is_replaced_while_a_program_starts_ends_it(attacker: Attacker) -> None:
    launch = attacker.sandbox.wrap(("sh", "-c", "exec sleep 1000"), attacker.policy)
    assert launch.enclose is not None
    attacker.tried += 1
    late = Meanwhile(launch.enclose, lambda: git(attacker.repo, "config", "user.name", "somebody"))
    async with await AgentProcess(replace(launch, enclose=late)).start() as process:
        assert await process.wait() != 0
        assert process.limit_hit.startswith("config was replaced from outside")


async def test_a46_no_place_takes_more_than_it_may(attacker: Attacker, docker_host: str) -> None:
    """Not the container's own layer, nor what the daemon keeps of it; swap is memory."""
    _, said = await attacker.tries(
        "find / -xdev -type d -writable -not -path '/proc/*' 2>/dev/null; find /dev -maxdepth 1 -type d -writable"
    )
    assert {*said.split()} <= {
        "/tmp", "/dev/shm", "/dev/mqueue", "/workspace", str(attacker.repo), str(attacker.home)
    }  # fmt: skip
    fill = "dd if=/dev/zero of={}/fill bs=1M count=300 2>/dev/null"
    await attacker.fails(*(fill.format(place) for place in ("/tmp", "/dev/shm", "~", ".codebutler")))
    [made] = seen_by_docker(docker_host)
    host = made["HostConfig"]
    assert host["LogConfig"] == {"Type": "none", "Config": {}}
    assert host["Memory"] == host["MemorySwap"] == 512 * 2**20
    assert (host["PidsLimit"], host["OomKillDisable"], host["Devices"]) == (128, False, [])


async def test_a46_a_bomb_ends_with_its_turn(attacker: Attacker, docker_host: str) -> None:
    bomb = "bomb() { setsid sh -c 'trap \"\" TERM HUP INT; exec sleep 1000' & bomb & bomb & }; bomb; echo up; wait"
    launch = attacker.sandbox.wrap(("bash", "-c", bomb), attacker.policy)
    attacker.tried += 1
    async with await AgentProcess(launch).start() as process, asyncio.timeout(60):
        assert await anext(process.lines()) == b"up"
        while not process.limit_hit:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.05)
        assert "128 processes" in process.limit_hit
    assert made_by(docker_host, os.getpid()) == []
    assert await attacker.tries("echo well") == (0, "well\n")


REACHED = """python3 - <<'EOF'
import socket as s
tried = [(s.AF_INET, kind, (host, 53)) for kind in (s.SOCK_STREAM, s.SOCK_DGRAM) for host in (
    "172.17.0.1", "169.254.169.254", "10.0.2.2", "255.255.255.255")]
tried += [(s.AF_INET6, s.SOCK_DGRAM, (host, 53)) for host in ("fe80::1", "fd00:ec2::254", "ff02::1", "::ffff:10.0.2.2")]
tried += [(s.AF_INET, s.SOCK_STREAM, ("127.0.0.11", port)) for port in (53, 2375)]
for family, kind, address in tried:
    try:
        with s.socket(family, kind) as one:
            one.settimeout(5)
            one.connect(address)
            print("reached", address)
    except OSError:
        print("stopped", address)
EOF"""


async def test_a47_no_address_of_dockers_is_reached(attacker: Attacker) -> None:
    """The bridge's gateway, docker's name service, a cloud's metadata: there is no device to reach any by."""
    code, said = await attacker.tries(REACHED)
    assert (code, said.count("stopped"), said.count("reached")) == (0, 14, 0), said
    attacker.tried += 13
    await attacker.fails(
        "getent hosts host.docker.internal || getent hosts gateway.docker.internal || getent hosts example.org",
        "python3 -c 'import socket as s; s.socket(s.AF_INET, s.SOCK_RAW, 1)'",
        "python3 -c 'import socket as s; s.socket(s.AF_PACKET, s.SOCK_RAW)'",
        "grep -E '^(nameserver|search)' /etc/resolv.conf | grep -vE '^(nameserver 127.0.0.1|search \\.)$'",
        "tail -n +3 /proc/net/dev | grep -v '^ *lo:' || tail -n +2 /proc/net/route | grep .",
    )


async def test_a48_who_looks_at_containers_and_processes_sees_no_value(
    attacker: Attacker, docker_host: str
) -> None:
    policy = replace(attacker.policy, env={**attacker.policy.env, "KEY": SECRET})
    async with await AgentProcess(
        attacker.sandbox.wrap(("sh", "-c", "echo $KEY; sleep 1000"), policy)
    ).start() as process:
        assert await anext(process.lines()) == SECRET.encode()
        attacker.tried += 2
        assert SECRET not in json.dumps(seen_by_docker(docker_host))
        commands = (path.joinpath("cmdline") for path in Path("/proc").iterdir() if path.name.isdecimal())
        assert not any(SECRET.encode() in each.read_bytes() for each in commands if each.exists())


@pytest.mark.parametrize("name", ["-rm,readonly", 'a=b,"c" $(touch owned); \\ é\n{{.Names}}'])
async def test_a49_no_name_of_a_repository_is_an_option(attacker: Attacker, name: str) -> None:
    attacker.repo = attacker.repo.rename(attacker.base / name)
    attacker.policy = replace(attacker.policy, workdir=attacker.repo)
    await attacker.fails("echo x >> .git/config", "cat .codebutler/store.db", "echo x > ../owned")
    assert await attacker.tries("pwd; echo x > made") == (0, f"{attacker.repo}\n")
    assert (attacker.repo / "made").stat().st_uid == attacker.repo.stat().st_uid
    assert {path.name for path in attacker.base.iterdir()} == {"home", name}
