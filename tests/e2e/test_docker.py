"""The whole product with its agents in containers of a real docker daemon."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

from codebutler_worker.sandbox.containers import CONVERSATION, OWNER
from tests.dockerd import docker, made_by
from tests.e2e.house import house
from tests.ordinary import give_repository_away

QUICK = {"debounceSeconds": 0, "default": "rehearsal"}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - docker tells nobody
            await asyncio.sleep(0.1)


async def test_a_conversation_has_a_container_until_it_is_reset_or_its_supervisor_dies(
    tmp_path: Path, git_repo: Path, docker_host: str
) -> None:
    async with house(tmp_path, "sample", extra_env={"DOCKER_HOST": docker_host}) as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK, sandbox={"mode": "docker"})
        give_repository_away(git_repo)
        await built.supervise()

        def containers(ts: str) -> list[int]:
            """The workers whose containers a thread's conversation has."""
            form = f'{{{{.Label "{CONVERSATION}"}}}}|{{{{.Label "{OWNER}"}}}}'
            rows = [line.split("|") for line in docker(docker_host, "ps", "--format", form).splitlines()]
            return [int(owner.split("-")[2]) for conversation, owner in rows if ts in conversation]

        ts = await built.say(channel, "create made.txt with hello")
        assert await built.outcome(channel, ts) == "white_check_mark", [
            m["text"] for m in built.answers(channel, ts)
        ]
        assert (git_repo / "made.txt").read_text() == "hello\n"
        assert (git_repo / "made.txt").stat().st_uid == git_repo.stat().st_uid
        assert len(containers(ts)) == 1
        await built.say(channel, "!reset", ts)
        await until(lambda: not containers(ts))
        second = await built.say(channel, "wait 600")
        await until(lambda: bool(containers(second)))
        [worker] = containers(second)
        assert built.supervisor is not None
        os.kill(built.supervisor.pid, signal.SIGKILL)
        await until(lambda: made_by(docker_host, worker) == [])
