"""Spans reach a collector, and one that is not there disturbs nobody."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time

from msgspec.structs import replace

from codebutler.observe.otlp import CLOSE_S, Collector, address
from codebutler.observe.tracing import RunSpan
from tests.otlpserver import CollectorServer

ROOT = RunSpan(
    trace="1" * 32,
    id="2" * 16,
    name="message",
    began=1_000,
    ended=5_000,
    attributes={"codebutler.repo": "shop"},
)
PART = replace(ROOT, id="3" * 16, parent=ROOT.id, name="agent", failed=True, attributes={})


async def test_spans_arrive_as_they_were() -> None:
    async with CollectorServer() as server:
        collector = await asyncio.to_thread(Collector, server.url, print)
        collector.export([ROOT, PART])
        root, part = await server.until("message", "agent")
        await asyncio.to_thread(collector.close)
    assert (root.trace, root.id, root.parent, root.began, root.ended) == (
        "1" * 32,
        "2" * 16,
        "",
        1_000,
        5_000,
    )
    assert root.attributes == {"codebutler.repo": "shop"}
    assert (part.parent, part.name, part.failed, root.failed) == (ROOT.id, "agent", True, False)
    assert part.service == "codebutler"


async def test_a_collector_that_is_not_there_is_told_of_once_and_costs_no_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    told: list[str] = []
    collector = await asyncio.to_thread(Collector, f"http://127.0.0.1:{port}", told.append)
    began_s = time.monotonic()
    for _ in range(5_000):
        collector.export([ROOT])
    assert time.monotonic() - began_s < 2
    async with asyncio.timeout(30):
        while not told:  # noqa: ASYNC110 - a thread of the SDK's tells
            await asyncio.sleep(0.05)
    began_s = time.monotonic()
    await asyncio.to_thread(collector.close)
    assert time.monotonic() - began_s < CLOSE_S + 2
    assert told == [f"traces are lost: nothing answers at http://127.0.0.1:{port}"]


def test_the_endpoint_may_be_the_collectors_own_address() -> None:
    assert address("http://127.0.0.1:4318") == "http://127.0.0.1:4318/v1/traces"
    assert address("http://127.0.0.1:4318/") == "http://127.0.0.1:4318/v1/traces"
    assert address("https://traces.example/api/v1/traces") == "https://traces.example/api/v1/traces"


def test_neither_process_imports_it_by_itself() -> None:
    code = (
        "import sys, codebutler.parent.bootstrap, codebutler_worker.worker.bootstrap\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('opentelemetry', 'google', 'requests')])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
