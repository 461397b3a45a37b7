"""How long the parts of a run took, for a trace. Exchanged only if the parent traces; it holds nothing that a person
or an agent wrote."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

TraceContext = Annotated[str, Meta(pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-01\Z")]
"""W3C Trace Context, ``traceparent``."""
Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{0,60}\Z")]
Nanoseconds = Annotated[int, Meta(ge=0, le=2**62)]
"""Nanoseconds since the epoch."""
SpanName = Literal["queued", "agent", "tool"]
MOST_SPANS = 500


class WorkSpan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a run. ``label`` is the agent's or the tool's name, "" if it is not a plain one."""

    name: SpanName
    began: Nanoseconds
    ended: Nanoseconds
    label: Label = ""


class Traced(Struct, frozen=True, kw_only=True, tag_field="type", tag="traced", forbid_unknown_fields=True):
    """From a worker: the parts of the run of the message that came with ``trace``."""

    trace: TraceContext
    spans: Annotated[tuple[WorkSpan, ...], Meta(max_length=MOST_SPANS)]
