"""A gateway, a standby and a host, each a process with a home of its own, over a real NATS server.

| case | what happens |
|---|---|
| K01 | a message is answered by the agent of another machine, which never had a token of the chat |
| K02 | the host is killed with a message on its way: it is answered once the host is back, and once |
| K03 | the gateway is killed: the standby leads, and what is said then is answered |
| K04 | a second process of the same host waits, and the first one goes on |
| K06 | a gateway that was stopped for a while wakes up fenced, stands by, and leads again later |
| K07 | the gateway dies with its disk, the host is away: the standby has what was accepted, and fetches the rest |
| K10 | a host is stopped for so long that another process becomes it: it wakes up fenced, and ends |
| K11 | the NATS servers come back with other keys: the gateway says so in one line, and ends |
| K05 | `codebutler supervise` imports nothing of NATS |
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from codebutler.config.paths import Home
from tests import warm
from tests.commands import output_of
from tests.e2e.house import DEADLINE_S, House, command, house, whole_text
from tests.e2e.test_matrix import QUICK
from tests.natsserver import NatsServer, nats_server
from tests.ordinary import give_repository_away
from tests.programs import require

ASKED, LISTED = "list the files", "README.md"


@dataclass
class Machine:
    """A home, and the process that holds it."""

    home: Path
    env: dict[str, str]
    process: asyncio.subprocess.Process | warm.WarmProcess | None = None
    out: Path = field(init=False)

    def __post_init__(self) -> None:
        self.out = self.home / "supervise.out"

    async def run(self, *arguments: str) -> str:
        return await output_of(*command(*arguments), env=self.env)

    async def start(self, word: str) -> None:
        with self.out.open("ab") as log:
            self.process = await warm.start_logged(command(word), self.env, log)

    async def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()

    async def says(self, text: str) -> None:
        """Wait until its log has ``text``."""
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.out.read_text():  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.1)


@dataclass
class Cluster:
    built: House
    nats: NatsServer
    gateway: Machine
    standby: Machine
    host: Machine
    channel: str

    async def answered(self, text: str = ASKED) -> str:
        ts = await self.built.say(self.channel, text)
        await self.built.answer(self.channel, ts, LISTED)
        assert await self.built.outcome(self.channel, ts) == "white_check_mark"
        return ts

    def listings(self, ts: str) -> list[str]:
        """The answers in that thread."""
        answers = [whole_text(each) for each in self.built.answers(self.channel, ts)]
        return [each for each in answers if LISTED in each]

    async def up(self) -> None:
        """The gateway hears the chat, and the host's worker runs. What was said before is not for it."""
        await self.gateway.start("gateway")
        await self.host.start("host")
        await self.built.until_status(
            lambda status: (
                status["slack"]["state"] == "connected" and status["repos"][0]["worker"]["state"] == "running"
            )
        )

    def log(self) -> str:
        machines = (self.gateway, self.standby, self.host)
        return "\n".join(
            f"== {each.home.name}\n{each.out.read_text()}" for each in machines if each.out.exists()
        )


@asynccontextmanager
async def cluster(tmp_path: Path, repo: Path, *channels: str) -> AsyncIterator[Cluster]:
    """Everything is registered as people do it; nothing runs but NATS and the workspace."""
    require("bwrap")
    (tmp_path / "nats").mkdir()
    async with nats_server(tmp_path / "nats") as server, house(tmp_path, "shop", *channels) as built:
        channel = built.channel_id("shop")
        gateway = machine(built, server, "gateway", built.home)
        await gateway.run("add-repo", "laptop:shop", "--channel", channel)
        standby = machine(built, server, "gateway", shutil.copytree(built.home, tmp_path / "standby"))
        host = machine(built, server, "laptop", tmp_path / "laptop")
        Home(host.home).config.write_text(json.dumps({"agent": QUICK, "output": {"changes": "off"}}))
        give_repository_away(repo)
        await host.run("add-repo", str(repo), "--name", "shop")
        made = Cluster(built, server, gateway, standby, host, channel)
        try:
            yield made
        except Exception as error:
            raise AssertionError(f"{json.dumps(await built.status())}\n{made.log()}") from error
        finally:
            for each in (host, standby, gateway):
                if each.process is not None:
                    await each.end()


def machine(built: House, server: NatsServer, name: str, home: Path) -> Machine:
    home.mkdir(mode=0o700, exist_ok=True)
    membership = home / "cluster.json"
    membership.touch(mode=0o600)
    membership.write_bytes(msgspec.json.encode(server.membership(name)))
    env = built.env | {"CODEBUTLER_HOME": str(home)}
    if name != "gateway":
        env = {key: value for key, value in env.items() if not key.startswith("SLACK_")}
    return Machine(home, env)


async def test_k01_a_message_is_answered_on_another_machine(tmp_path: Path, git_repo: Path) -> None:
    async with cluster(tmp_path, git_repo) as made:
        await made.up()
        await made.answered()
        assert "xox" not in "".join(
            each.read_text(errors="replace") for each in made.host.home.rglob("*") if each.is_file()
        )
        assert await made.host.end() == 0
        assert await made.gateway.end() == 0


async def test_k02_a_message_waits_for_its_host(tmp_path: Path, git_repo: Path) -> None:
    async with cluster(tmp_path, git_repo) as made:
        await made.up()
        await made.answered()
        await made.host.end(signal.SIGKILL)
        ts = await made.built.say(made.channel, ASKED)
        await made.host.start("host")
        await made.built.answer(made.channel, ts, LISTED)
        assert await made.built.outcome(made.channel, ts) == "white_check_mark"
        assert len(made.listings(ts)) == 1


async def test_k03_a_stand_by_takes_over(tmp_path: Path, git_repo: Path) -> None:
    async with cluster(tmp_path, git_repo) as made:
        await made.up()
        await made.standby.start("gateway")
        await made.standby.says("On standby")
        await made.answered()
        await made.gateway.end(signal.SIGKILL)
        await made.standby.says("slack connected")
        assert "this gateway is active" in made.standby.out.read_text()
        await made.answered()


@pytest.mark.parametrize("accepted", [True, False])
async def test_k07_what_a_gateway_was_told_outlives_its_disk(
    tmp_path: Path, git_repo: Path, accepted: bool
) -> None:
    """What it had not accepted, the next one reads in the history, sooner than the chat repeats it."""
    async with cluster(tmp_path, git_repo) as made:
        await made.up()
        await made.standby.start("gateway")
        await made.standby.says("On standby")
        await made.answered()
        await made.host.end(signal.SIGKILL)
        if not accepted:
            assert made.gateway.process is not None
            made.gateway.process.send_signal(signal.SIGSTOP)
        ts = await made.built.say(made.channel, ASKED)
        if accepted:
            counts = made.built.workspace.hub.counts
            await made.built.until("an acknowledgement", lambda: counts.acked == counts.sent or None)
        await made.gateway.end(signal.SIGKILL)
        shutil.rmtree(made.gateway.home)
        made.gateway.home.mkdir(mode=0o700)
        await made.host.start("host")
        await made.built.answer(made.channel, ts, LISTED)
        assert len(made.listings(ts)) == 1


async def test_k06_a_gateway_that_slept_leads_no_more(tmp_path: Path, git_repo: Path) -> None:
    async with cluster(tmp_path, git_repo) as made:
        await made.up()
        await made.standby.start("gateway")
        await made.standby.says("On standby")
        assert made.gateway.process is not None
        made.gateway.process.send_signal(signal.SIGSTOP)
        await made.standby.says("slack connected")
        made.gateway.process.send_signal(signal.SIGCONT)
        await made.gateway.says("No longer active")
        ts = await made.answered()
        assert len(made.listings(ts)) == 1
        assert await made.standby.end() == 0
        async with asyncio.timeout(DEADLINE_S):
            while made.gateway.out.read_text().count("slack connected") < 2:  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.1)
        await made.answered()


async def test_k04_only_one_process_is_a_host(tmp_path: Path, git_repo: Path) -> None:
    async with cluster(tmp_path, git_repo) as made:
        await made.up()
        await made.answered()
        twin = machine(made.built, made.nats, "laptop", tmp_path / "twin")
        await twin.start("host")
        await twin.says("another process runs as this host")
        await made.answered()
        assert await twin.end() == 0


async def test_k10_a_host_that_slept_is_no_host_any_more(tmp_path: Path, git_repo: Path) -> None:
    async with cluster(tmp_path, git_repo) as made:
        await made.up()
        await made.answered()
        twin = machine(made.built, made.nats, "laptop", tmp_path / "twin")
        shutil.copy(made.host.home / "config.json", twin.home)
        copy = shutil.copytree(git_repo, tmp_path / "copy", ignore=shutil.ignore_patterns(".codebutler"))
        give_repository_away(copy)
        await twin.run("add-repo", str(copy), "--name", "shop")
        assert made.host.process is not None
        made.host.process.send_signal(signal.SIGSTOP)
        try:
            await twin.start("host")
            ts = await made.answered()
        finally:
            made.host.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(DEADLINE_S):
            assert await made.host.process.wait() != 0
        assert "another process runs as this host" in made.host.out.read_text()
        await made.answered()
        assert len(made.listings(ts)) == 1
        assert await twin.end() == 0


async def test_k11_a_gateway_that_is_refused_says_so_and_ends(tmp_path: Path, git_repo: Path) -> None:
    async with cluster(tmp_path, git_repo) as made:
        await made.gateway.start("gateway")
        await made.gateway.says("slack connected")
        await made.nats.kill()
        made.nats.forget()
        await made.nats.start()
        assert made.gateway.process is not None
        async with asyncio.timeout(DEADLINE_S):
            assert await made.gateway.process.wait() == 78
        told = made.gateway.out.read_text()
        assert told.count("the NATS servers refuse this gateway") == 1
        assert "Traceback" not in told


async def test_k05_a_supervisor_imports_nothing_of_nats() -> None:
    """Neither do its commands."""
    looked = (
        "import sys\n"
        "import codebutler.parent.bootstrap, codebutler.cli.serve, codebutler.cli.repositories\n"
        "import codebutler_worker.preload\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'nats' or name == 'codebutler.cluster.bus'])"
    )
    assert await output_of(sys.executable, "-c", looked, env=os.environ) == "[]\n"
