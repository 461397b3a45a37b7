"""A machine that joins a cluster and is removed from it, as people do it, without a line of JSON.

| case | what happens |
|---|---|
| K07 | a message is answered on a machine that joined by its token; removed, it ends, says why, and is missed |
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from codebutler.config.paths import Home
from tests.commands import output_of
from tests.e2e.house import DEADLINE_S, House, command, house
from tests.e2e.test_cluster import LISTED, Machine
from tests.e2e.test_matrix import QUICK
from tests.integration.cli.test_cluster_command import serving
from tests.natsserver import free_port
from tests.ordinary import give_repository_away
from tests.programs import require


def everything(built: House, channel: str) -> str:
    return " ".join(each.text for each in built.workspace.workspace.channel(channel).messages.values())


async def test_k07_a_machine_joins_works_and_is_removed(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    give_repository_away(git_repo)
    async with house(tmp_path, "shop") as built:
        channel = built.channel_id("shop")
        gateway = Machine(built.home, built.env | {"CODEBUTLER_HOME": str(built.home)})
        (tmp_path / "laptop").mkdir(mode=0o700)
        bare = {key: value for key, value in built.env.items() if not key.startswith("SLACK_")}
        host = Machine(tmp_path / "laptop", bare | {"CODEBUTLER_HOME": str(tmp_path / "laptop")})
        Home(host.home).config.write_text(json.dumps({"agent": QUICK, "output": {"changes": "off"}}))
        await gateway.run("cluster", "create", "--server", f"127.0.0.1:{free_port()}")
        async with serving(built.home / "nats"):
            said = await gateway.run("cluster", "invite", "laptop")
            token = next(each for each in said.splitlines() if each.startswith("cbj1."))
            await output_of(*command("host", "join"), env=host.env, typed=token)
            await host.run("add-repo", str(git_repo), "--name", "shop")
            await gateway.run("add-repo", "laptop:shop", "--channel", channel)
            await gateway.start("gateway")
            await host.start("host")
            try:
                await built.until_status(
                    lambda status: (
                        status["slack"]["state"] == "connected"
                        and status["repos"][0]["worker"]["state"] == "running"
                    )
                )
                ts = await built.say(channel, "list the files")
                await built.answer(channel, ts, LISTED)
                assert "its credential and its token are refused" in await gateway.run(
                    "cluster", "remove", "laptop"
                )
                assert host.process is not None
                async with asyncio.timeout(DEADLINE_S):
                    assert await host.process.wait() == 78
                assert "the NATS servers refuse laptop: it was removed" in host.out.read_text()
                await built.until(
                    "what was told of the removal",
                    lambda: "its host laptop was removed from the cluster" in everything(built, channel),
                )
                assert token not in gateway.out.read_text() + host.out.read_text()
            except Exception as error:
                raise AssertionError(gateway.out.read_text() + host.out.read_text()) from error
            finally:
                for each in (host, gateway):
                    if each.process is not None:
                        await each.end()
