"""Questions to a worker about its conversations, and its answers: asking changes nothing. How long the parts of a run
took is told without a question, for a trace: only if the parent traces, and nothing that a person or an agent wrote."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta, Struct

from codebutler.domain.model import Asked
from codebutler.domain.refs import NOWHERE, MessageRef

MAX_RUNS = 50
MAX_FOUND = 20
MAX_ASKED = 10
SAID_CHARS = 4_000
ANSWER_CHARS = 20_000
LINE_CHARS = 500
MAX_DIFF_BYTES = 3 * 2**18
"""The most of a run's changes in one frame: JSON adds a third to it, and the files' names come on top."""
MAX_CHANGED_FILES = 300
MAX_PATH_CHARS = 256

_ID = Annotated[str, Meta(max_length=100)]
_MessageID = Annotated[MessageRef, Meta(max_length=100)]
_Line = Annotated[str, Meta(max_length=LINE_CHARS)]
_Count = Annotated[int, Meta(ge=0, le=1_000_000)]
TraceContext = Annotated[str, Meta(pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-01\Z")]
"""W3C Trace Context, ``traceparent``."""
Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{0,60}\Z")]
Nanoseconds = Annotated[int, Meta(ge=0, le=2**62)]
"""Nanoseconds since the epoch."""
SpanName = Literal["queued", "agent", "tool"]
MOST_SPANS = 500


class _Message(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """A message between the parent and a worker."""

    request_id: _ID


class AskThread(_Message, frozen=True, tag="ask_thread"):
    """What was said in the conversation of this run? Answered by ThreadTold."""

    turn: str


class AskFound(_Message, frozen=True, tag="ask_found"):
    """Which conversations have all these words? Answered by FoundTold."""

    words: str


class SaidTold(Struct, frozen=True, kw_only=True):
    """A person's message."""

    user: _ID
    at: _ID
    text: Annotated[str, Meta(max_length=SAID_CHARS)]


class RunTold(Struct, frozen=True, kw_only=True):
    """A run: the messages it answers, the decisions made for it (a line each), its ``answer`` (the agent's Markdown,
    incomplete if ``is_cut``)."""

    id: _ID
    state: _ID
    agent: _ID
    at: _ID
    said: Annotated[tuple[SaidTold, ...], Meta(max_length=20)] = ()
    decided: Annotated[tuple[_Line, ...], Meta(max_length=50)] = ()
    answer: Annotated[str, Meta(max_length=ANSWER_CHARS)] = ""
    is_cut: bool = False
    cost_usd: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    changed: bool = False


class AskedTold(Struct, frozen=True, kw_only=True):
    """What the run waits for, with all of its text; "" if that is too long even for a page. ``is_foreign``: it is the
    agent's own Markdown."""

    asked: Asked
    is_foreign: bool = False


class ThreadTold(_Message, frozen=True, tag="thread_told"):
    """The newest runs of the conversation, oldest first; ``has_more``: there were earlier ones. ``asked``: what the run
    in question waits for. ``problem``: one line that says why there is no answer."""

    problem: _Line = ""
    thread: _MessageID = NOWHERE
    runs: Annotated[tuple[RunTold, ...], Meta(max_length=MAX_RUNS)] = ()
    has_more: bool = False
    asked: Annotated[tuple[AskedTold, ...], Meta(max_length=MAX_ASKED)] = ()


class FoundRun(Struct, frozen=True, kw_only=True):
    """The best run of a conversation: how it began, and (our own Markdown) the text around the match."""

    id: _ID
    thread: _MessageID
    agent: _ID
    at: _ID
    title: _Line
    text: Annotated[str, Meta(max_length=4 * LINE_CHARS)]


class FoundTold(_Message, frozen=True, tag="found_told"):
    """The best conversations, best first."""

    problem: _Line = ""
    runs: Annotated[tuple[FoundRun, ...], Meta(max_length=MAX_FOUND)] = ()


class AskDiff(_Message, frozen=True, tag="ask_diff"):
    """What did this run change? Answered by RunChanges; it changes nothing, so it may be asked again."""

    turn: str


class ChangedFile(Struct, frozen=True, kw_only=True):
    """A file that a run changed. ``added`` and ``removed``: lines, None for a binary file; ``old``: its name before, ""
    if that is the same. ``is_shown``: ``body`` has its lines."""

    path: Annotated[str, Meta(max_length=MAX_PATH_CHARS)]
    old: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] = ""
    added: _Count | None = None
    removed: _Count | None = None
    is_shown: bool = False


class RunChanges(_Message, frozen=True, tag="run_changes"):
    """The answer to AskDiff, or ``problem``: one line that says why there is none. ``body``: git's diff of the files
    that are shown, in their order; ``is_cut``: it is incomplete; ``more``: how many files are left out."""

    problem: Annotated[str, Meta(max_length=500)] = ""
    thread: _MessageID = NOWHERE
    agent: _ID = ""
    task: Annotated[str, Meta(max_length=500)] = ""
    at: _ID = ""
    files: Annotated[tuple[ChangedFile, ...], Meta(max_length=MAX_CHANGED_FILES)] = ()
    more: _Count = 0
    commits: Annotated[tuple[Annotated[str, Meta(max_length=500)], ...], Meta(max_length=100)] = ()
    body: Annotated[bytes, Meta(max_length=MAX_DIFF_BYTES)] = b""
    is_cut: bool = False


Question = AskThread | AskFound | AskDiff
Told = ThreadTold | FoundTold | RunChanges
ANSWERED_BY: Mapping[type[Question], type[Told]] = MappingProxyType(
    {AskThread: ThreadTold, AskFound: FoundTold, AskDiff: RunChanges}
)


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
