"""Hooks over real HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import pytest
from msgspec import structs
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from codebutler.config.section import DashboardSection
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import ChatError
from codebutler.intake.intake import Outcome
from codebutler.platform.tasks import beside
from codebutler.schedule.jobs import Hook, JobPlace, parse_file, place_in
from codebutler.web.dashboard.dashboard import Dashboard
from codebutler.web.server import MAX_BODY_BYTES, PER_MINUTE, DashboardAddress, Hooks, WebServer

SECRET = "a-secret-of-some-length"
FILE = b"hooks: [{name: ci, secretEnv: S, prompt: look}]"
BEARER = {"authorization": f"Bearer {SECRET}"}


class Schedule:
    """What was called, once a key."""

    def __init__(self) -> None:
        hooks = parse_file(FILE, "jobs.yaml", place_in([JobPlace("shop", "C1")]), {"S": SECRET}).hooks
        self.hooks: Mapping[str, Hook] = {hook.name: hook for hook in hooks}
        self.calls: list[tuple[str, object, str]] = []
        self.broken = False
        self.outcome: Outcome = "accepted"

    async def called(self, hook: Hook, body: object, key: str) -> Outcome:
        if self.broken:
            raise ChatError("channel_not_found")
        if key in {earlier for _, _, earlier in self.calls}:
            return "duplicate"
        self.calls.append((hook.name, body, key))
        return self.outcome


class NoDashboard(Dashboard):
    """Nothing to look at."""

    def __init__(self) -> None:
        pass

    def app(self, bound_to: str) -> ASGIApp:
        return PlainTextResponse("nothing here", 404)

    def ticket(self) -> str:
        return "ticket"

    def close(self) -> None:
        """Nobody looks."""


@asynccontextmanager
async def served(schedule: Schedule, port: int = 0, body_s: float = 30) -> AsyncIterator[httpx.AsyncClient]:
    hooks = Hooks(schedule, SystemClock(), body_s=body_s)
    server = WebServer(DashboardSection(port=port), hooks, NoDashboard(), DashboardAddress())
    server.enable_hooks(schedule.hooks)
    async with beside(server.run(), name="hooks"), asyncio.timeout(30):
        await server.listening.wait()
        async with httpx.AsyncClient(base_url=f"{server.url}hooks/", trust_env=False) as client:
            yield client


async def test_a_call_is_taken_with_its_body_and_key() -> None:
    schedule = Schedule()
    async with served(schedule) as client:
        answer = await client.post("ci", json={"a": 1}, headers={**BEARER, "X-GitHub-Delivery": "d1"})
        assert (answer.status_code, answer.text) == (202, "accepted\n")
        await client.post("ci", content=b"plain \xff", headers=BEARER)
    assert schedule.calls[0] == ("ci", {"a": 1}, "named:d1")
    assert schedule.calls[1][1] == "plain \ufffd"


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a": NaN}', b"\xff\x00", b""])
async def test_a_body_that_is_no_json_is_text(body: bytes) -> None:
    schedule = Schedule()
    async with served(schedule) as client:
        answer = await client.post("ci", content=body, headers=BEARER)
        assert answer.status_code == 202
        assert [taken for _, taken, _ in schedule.calls] == [body.decode(errors="replace")]


async def test_a_signed_body_is_taken_once_and_a_named_call_answered_alike() -> None:
    schedule = Schedule()
    signature = f"sha256={hmac.new(SECRET.encode(), b'{}', hashlib.sha256).hexdigest()}"
    signed = {"X-Hub-Signature-256": signature}
    async with served(schedule) as client:
        first = await client.post("ci", content=b"{}", headers={**signed, "X-GitHub-Delivery": "d1"})
        caught = await client.post("ci", content=b"{}", headers={**signed, "X-GitHub-Delivery": "d2"})
        named = [
            await client.post("ci", content=b"{}", headers={**BEARER, "Idempotency-Key": "k"})
            for _ in range(2)
        ]
    assert (first.status_code, caught.status_code) == (202, 409)
    assert [answer.status_code for answer in named] == [202, 202]
    assert len(schedule.calls) == 2


async def test_what_the_rules_do_not_allow_is_told() -> None:
    schedule = Schedule()
    schedule.outcome = "refused"
    async with served(schedule) as client:
        assert (await client.post("ci", headers=BEARER)).status_code == 403


async def test_strangers_learn_nothing() -> None:
    schedule = Schedule()
    async with served(schedule) as client:
        answers = [
            await client.post(name, headers=headers)
            for name in ("ci", "no")
            for headers in ({}, {"authorization": "Bearer x"})
        ]
        answers.append(await client.post("no", headers=BEARER))
        assert {(answer.status_code, answer.text) for answer in answers} == {
            (401, "no such hook, or the wrong secret\n")
        }
        assert (await client.get("ci")).status_code == 405
        assert (
            await client.post("ci", content=b"x" * (MAX_BODY_BYTES + 1), headers=BEARER)
        ).status_code == 413
    assert schedule.calls == []


async def test_a_flood_and_a_failure_are_told() -> None:
    schedule = Schedule()
    async with served(schedule) as client:
        schedule.broken = True
        assert (await client.post("ci", headers=BEARER)).status_code == 503
        schedule.broken = False
        statuses = [(await client.post("ci", headers=BEARER)).status_code for _ in range(PER_MINUTE + 1)]
    assert statuses == [202] * (PER_MINUTE - 1) + [429] * 2


async def test_the_checks_of_a_pull_request_may_call_more_often() -> None:
    schedule = Schedule()
    schedule.hooks = {"ci": structs.replace(schedule.hooks["ci"], pulls=True)}
    async with served(schedule) as client:
        statuses = {(await client.post("ci", headers=BEARER)).status_code for _ in range(PER_MINUTE * 2)}
    assert statuses == {202}


@pytest.mark.parametrize("gone", [True, False])
async def test_a_body_that_does_not_come_is_not_waited_for(
    caplog: pytest.LogCaptureFixture, gone: bool
) -> None:
    schedule = Schedule()
    with caplog.at_level(logging.ERROR):
        async with served(schedule, body_s=0.2) as client, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
            head = f"POST /hooks/ci HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n"
            writer.write(f"{head}Content-Length: 1000\r\n\r\nhalf".encode())
            await writer.drain()
            if not gone:
                assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
            writer.close()
            assert (await client.post("ci", headers=BEARER)).status_code == 202
    assert len(schedule.calls) == 1
    assert caplog.records == []


async def test_a_port_in_use_is_stepped_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with served(Schedule(), port) as client:
            assert client.base_url.port != port
            assert (await client.post("ci", headers=BEARER)).status_code == 202


async def test_where_nothing_may_listen_nothing_does(caplog: pytest.LogCaptureFixture) -> None:
    schedule = Schedule()
    server = WebServer(
        DashboardSection(enabled=False, port=0),
        Hooks(schedule, SystemClock()),
        NoDashboard(),
        DashboardAddress(),
    )
    server.enable_hooks(schedule.hooks)
    async with asyncio.timeout(30):
        await server.run()
    assert "dashboard.enabled is false" in caplog.text
    assert not server.listening.is_set()
