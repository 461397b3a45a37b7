"""The trace of a real turn: one, across supervisor and worker, and nothing without it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tests.e2e.house import House, house
from tests.e2e.test_matrix import QUICK
from tests.otlpserver import CollectorServer
from tests.programs import require

SECRET = "xoxb-1234567890-abcdefghijkl"
PARTS = ("journal", "delivery", "queued", "agent", "tool", "answer", "message")


def trace_to(built: House, endpoint: str) -> None:
    config = built.home / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tracing": {"endpoint": endpoint}}))


async def has_loaded(built: House) -> tuple[bool, bool]:
    """Whether OpenTelemetry's protobuf is mapped into the supervisor and into its worker."""
    status = await built.status()
    assert status is not None
    pids = (status["supervisor"]["pid"], status["repos"][0]["worker"]["pid"])
    supervisor, worker = ("_upb" in Path(f"/proc/{pid}/maps").read_text() for pid in pids)
    return supervisor, worker


async def test_a_turn_is_one_trace_without_its_words(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with CollectorServer() as server, house(tmp_path, "sample") as built:
        trace_to(built, server.url)
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        ts = await built.say(channel, f"create made.txt with {SECRET} hush")
        assert await built.outcome(channel, ts) == "white_check_mark"
        spans = await server.until(*PARTS)
        assert await has_loaded(built) == (True, False)
        assert await built.stop() == 0
    found = {span.name: span for span in spans}
    root, agent = found["message"], found["agent"]
    assert {span.trace for span in spans} == {root.trace}
    assert root.parent == ""
    assert found["tool"].parent == agent.id
    assert {found[name].parent for name in PARTS if name not in ("tool", "message")} == {root.id}
    for name in PARTS:
        assert root.began <= found[name].began <= found[name].ended <= root.ended, name
    order = [found[name].began for name in ("journal", "delivery", "queued", "agent", "tool", "answer")]
    assert order == sorted(order)
    assert agent.attributes == {"codebutler.repo": "sample", "codebutler.agent": "rehearsal"}
    assert found["tool"].attributes["codebutler.tool"] == "Write"
    assert root.attributes["codebutler.outcome"] == "done"
    everything = b"".join(server.raw)
    for words in (SECRET, "hush", "made.txt", built.workspace.workspace.person.id, channel, str(git_repo)):
        assert words.encode() not in everything


async def test_a_dead_collector_disturbs_no_turn(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with house(tmp_path, "sample") as built:
        trace_to(built, dead)
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        for _ in range(3):
            ts = await built.say(channel, "read README.md")
            assert await built.outcome(channel, ts) == "white_check_mark"
        assert await built.stop() == 0
        assert built.log().count(f"traces are lost: nothing answers at {dead}") == 1
        assert "Traceback" not in built.log()


async def test_without_a_collector_nothing_of_it_is_loaded(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        ts = await built.say(channel, "read README.md")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert await has_loaded(built) == (False, False)
