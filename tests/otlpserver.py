"""The tests' own collector: OTLP over HTTP on loopback, decoded with the official protobuf messages."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.loopback import on_loopback

DEADLINE_S = 45.0


@dataclass(frozen=True, slots=True)
class CollectedSpan:
    """As it came. IDs in hex, times in nanoseconds."""

    trace: str
    id: str
    parent: str
    name: str
    began: int
    ended: int
    attributes: dict[str, str]
    failed: bool
    service: str


@dataclass(slots=True)
class CollectorServer:
    """Use as an async context manager. ``raw`` is every body, ``spans`` what they say; ``status`` other than 200 is a
    refusal."""

    status: int = 200
    url: str = ""
    spans: list[CollectedSpan] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    _came: asyncio.Event = field(default_factory=asyncio.Event)
    _open: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self.url = f"http://127.0.0.1:{await self._open.enter_async_context(on_loopback(app))}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def until(self, *names: str) -> list[CollectedSpan]:
        """All spans, once there is one of each name."""
        async with asyncio.timeout(DEADLINE_S):
            while not {*names} <= {span.name for span in self.spans}:
                self._came.clear()
                await self._came.wait()
        return self.spans

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if body.startswith(b"\x1f\x8b"):
            body = gzip.decompress(body)
        if self.status != 200:
            return web.Response(status=self.status)
        self.raw.append(body)
        told = ExportTraceServiceRequest.FromString(body)
        for resource in told.resource_spans:
            about = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_span(span, about["service.name"]) for span in scope.spans]
        self._came.set()
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")


def _span(span: object, service: str) -> CollectedSpan:
    given = span  # of a generated class without types
    return CollectedSpan(
        trace=given.trace_id.hex(),  # type: ignore[attr-defined]
        id=given.span_id.hex(),  # type: ignore[attr-defined]
        parent=given.parent_span_id.hex(),  # type: ignore[attr-defined]
        name=given.name,  # type: ignore[attr-defined]
        began=given.start_time_unix_nano,  # type: ignore[attr-defined]
        ended=given.end_time_unix_nano,  # type: ignore[attr-defined]
        attributes={each.key: each.value.string_value for each in given.attributes},  # type: ignore[attr-defined]
        failed=given.status.code == 2,  # type: ignore[attr-defined]
        service=service,
    )
