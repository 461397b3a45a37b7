"""Sends spans to a collector: OTLP over HTTP, with OpenTelemetry's SDK. Only a Collector loads it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from codebutler.domain.errors import ConfigError
from codebutler.domain.version import VERSION
from codebutler.observe.tracing import RunSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

PATH = "/v1/traces"
QUEUED = 2048
"""Spans that wait for the collector; more are dropped."""
EVERY_MS = 1000.0
SEND_S = 5.0
CLOSE_S = 3.0
MISSING = "tracing.endpoint needs OpenTelemetry: install codebutler[otel], or unset it"


class Collector:
    """Sends spans in batches, from a daemon thread. ``record`` is called once when the collector does not accept them,
    and once when it does again; nothing else is affected."""

    def __init__(self, endpoint: str, record: Callable[[str], None]) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
            from requests import Session
        except ImportError:
            raise ConfigError(MISSING) from None
        # The SDK would log each failure with a traceback.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        session = Session()
        session.trust_env = False  # no proxy, and no password of a .netrc
        inner = OTLPSpanExporter(address(endpoint), timeout=SEND_S, session=session)

        class Exporter(SpanExporter):
            lost = False

            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                result = inner.export(spans)
                lost = result is not SpanExportResult.SUCCESS
                if lost != self.lost:
                    self.lost = lost
                    record(
                        f"traces are {'lost: nothing answers' if lost else 'accepted again'} at {endpoint}"
                    )
                return result

            def shutdown(self) -> None:
                inner.shutdown()  # type: ignore[no-untyped-call]

        self._resource = Resource({"service.name": "codebutler", "service.version": VERSION})
        self._processor = BatchSpanProcessor(
            Exporter(),
            max_queue_size=QUEUED,
            schedule_delay_millis=EVERY_MS,
            export_timeout_millis=SEND_S * 1000,
        )

    def export(self, spans: Sequence[RunSpan]) -> None:
        """Queue them; returns at once."""
        for span in spans:
            self._processor.on_end(self._readable(span))

    def close(self) -> None:
        """Send what is queued, for some seconds at most. Blocks."""
        ending = threading.Thread(target=self._processor.shutdown, daemon=True, name="traces")
        ending.start()
        ending.join(CLOSE_S)

    def _readable(self, span: RunSpan) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(id_: str) -> SpanContext:
            flags = TraceFlags(TraceFlags.SAMPLED)
            return SpanContext(int(span.trace, 16), int(id_, 16), is_remote=False, trace_flags=flags)

        return ReadableSpan(
            span.name,
            context=context(span.id),
            parent=context(span.parent) if span.parent else None,
            resource=self._resource,
            attributes=dict(span.attributes),
            kind=SpanKind.INTERNAL if span.parent else SpanKind.CONSUMER,
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.began,
            end_time=span.ended,
        )


def address(endpoint: str) -> str:
    """Where traces go: the endpoint may be the collector's, without OTLP's path."""
    bare = endpoint.rstrip("/")
    return bare if bare.endswith(PATH) else f"{bare}{PATH}"
