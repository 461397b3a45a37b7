"""Every message between the parent and a worker. JSON over a pipe, never pickle: a worker is less trusted.

Changing a shape here means a new PROTOCOL_VERSION and a new golden file in ``tests/golden/protocol``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from codebutler.config.schema import RepoSettings
from codebutler.domain.model import Event, File, Operation, Quoted, Request, TurnNote, TurnOutcome
from codebutler.domain.refs import MessageRef, PersonRef
from codebutler.protocol.conversations import Question, Told, TraceContext, Traced
from codebutler.text.wording import Unit

PROTOCOL_VERSION = 5
MAX_FRAME_BYTES = 2 * 2**20
"""Larger content travels in pieces. JSON may take twenty times its size once it is parsed (``[{},{},…]``)."""
MAX_DELIVERED_BYTES = 32 * 2**20
"""What the parent, which is trusted, may send at once: a message with all its text."""
MAX_UPLOAD_BYTES = 21 * 2**20
PIECE_BYTES = 2**19
MAX_FETCH_BYTES = 32 * 2**20
"""Larger files are refused: the worker holds a file in memory until it is complete."""

StopReason = Literal["sleep", "shutdown", "restart"]
LiveKind = Literal["text", "writing", "tool", "plan", "note"]
MAX_COUNT = 1_000_000

ID = Annotated[str, Meta(max_length=100)]
"""The ID of an operation, a request, a file or a message: the parent stores it, and repeats it in its answer."""
MessageID = Annotated[MessageRef, Meta(max_length=100)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Amount = Annotated[float, Meta(ge=0, le=1e15)]
Messages = Annotated[tuple[MessageID, ...], Meta(max_length=10_000)]
LogTag = Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
"""Three letters: a log level, a kind of event, or an agent."""


class _ToWorker(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """A message from the parent to a worker."""


class TotalUse(_ToWorker, frozen=True, tag="total_use"):
    """What all other repositories have used on your day, which ends at ``until``, and in your month, which ends at
    ``month_until`` (ISO 8601, UTC). Sent when it changes, if all together have a budget."""

    day: DayUse
    until: str
    month: DayUse
    month_until: str


class Configure(_ToWorker, frozen=True, tag="configure"):
    """The answer to Hello: who you are. Holds no chat's token. ``total``: the first TotalUse."""

    settings: RepoSettings
    total: TotalUse | None = None


class Deliver(_ToWorker, frozen=True, tag="deliver"):
    """An accepted event of your channel; ``seq`` is its place in the journal. Answer Stored once it is on disk.
    ``trace`` is there only if the parent traces: answer Traced when the run has its result."""

    seq: int
    event: Event
    request: Request
    trace: TraceContext | UnsetType = UNSET


class Sent(_ToWorker, frozen=True, tag="sent"):
    """Your operation took effect; ``ref``: of its message, "" if there is none. Or: the end of your turn was reported
    to those who waited for it."""

    op_id: str
    ref: MessageRef


class SendFailed(_ToWorker, frozen=True, tag="send_failed"):
    """Your operation was refused for good; ``code``: the chat's reason."""

    op_id: str
    code: str


class StopTurns(_ToWorker, frozen=True, tag="stop_turns"):
    """End every running turn and withdraw every queued one; ``user`` is named as the person who stopped them."""

    user: PersonRef


class FileChunk(_ToWorker, frozen=True, tag="file_chunk"):
    """The next piece of the file you asked for by ``request_id``; ``last`` ends it (its data may be empty) and brings
    the file's details from the chat, which the message may lack."""

    request_id: str
    data: bytes
    last: bool = False
    file: File | None = None


class FileTranscript(_ToWorker, frozen=True, tag="file_transcript"):
    """The chat's own transcript of a voice clip, instead of its content."""

    request_id: str
    text: str


class ThreadFetched(_ToWorker, frozen=True, tag="thread_fetched"):
    """What was said in the thread you asked about, oldest first; ``left_out`` messages after the first are not in it.
    ``code``: why nothing came."""

    request_id: str
    said: tuple[Quoted, ...] = ()
    left_out: int = 0
    code: str = ""


class FetchFailed(_ToWorker, frozen=True, tag="fetch_failed"):
    """The file will not come, even if pieces of it did; ``code``: why."""

    request_id: str
    code: str


class LookAtPulls(_ToWorker, frozen=True, tag="look_at_pulls"):
    """Look at these pull requests now, if they are followed; none = at all that are."""

    numbers: tuple[int, ...] = ()


class Shutdown(_ToWorker, frozen=True, tag="shutdown"):
    """Finish what is running within ``grace_s`` seconds, then say Goodbye and exit."""

    reason: StopReason
    grace_s: float


class _ToParent(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """A message from a worker to the parent."""


class Hello(_ToParent, frozen=True, tag="hello"):
    """The first message: the worker is alive, and speaks this protocol."""

    version: int
    pid: int


class Ready(_ToParent, frozen=True, tag="ready"):
    """The store is open and recovered; events may come."""


class Stored(_ToParent, frozen=True, tag="stored"):
    """The event ``seq`` is committed in the worker's store; the journal may forget it."""

    seq: int


class Send(_ToParent, frozen=True, tag="send"):
    """Do this in your channel. ``unsure``: it was sent before without an answer, so look before you post."""

    op_id: ID
    operation: Operation
    unsure: bool = False


class TurnStarted(_ToParent, frozen=True, tag="turn_started"):
    """These messages are being worked on. Sent once: if the worker dies, they come with TurnEnded."""

    thread: MessageID
    messages: Messages


class TurnEnded(_ToParent, frozen=True, tag="turn_ended"):
    """These messages (none if the chat shows none) have their outcome, and their answer is in the chat; only an
    interruption is reported before that. ``agent``: whose turn it was, "" if no agent ran. Answered by Sent.

    It is a row of the worker's outbox, written with the outcome itself and sent again at each start until it is
    answered, so that nobody waits for ever if either process dies. So it may come twice.
    """

    op_id: ID
    thread: MessageID
    messages: Messages
    outcome: TurnOutcome
    agent: ID = ""


class UploadPiece(_ToParent, frozen=True, tag="upload_piece"):
    """The next piece of a large file. Its operation follows the last one, with the same ``op_id`` and no content."""

    op_id: ID
    data: bytes


class Fetch(_ToParent, frozen=True, tag="fetch"):
    """Give me the content of a file that was shared in my channel; answered by one of FileChunk (several),
    FileTranscript and FetchFailed. The parent looks the address up itself. ``request_id`` is new each time: late pieces
    of a cancelled request must not get into the next one's file."""

    request_id: ID
    file_id: ID


class Doing(_ToParent, frozen=True, tag="doing"):
    """The current activity in a thread, shown under it while it lasts; "" clears it. Not stored."""

    thread: MessageID
    text: str


class Live(_ToParent, frozen=True, tag="live"):
    """What a running turn says and does, as it happens, for listeners at this machine. Neither stored nor posted.

    ``writing``: a block of prose so far; ``text``: the whole block."""

    thread: MessageID
    kind: LiveKind
    text: str


class FetchThread(_ToParent, frozen=True, tag="fetch_thread"):
    """Tell me what was said in a thread of my channel before ``before``; answered by ThreadFetched."""

    request_id: ID
    thread: MessageID
    before: MessageID


class Heartbeat(_ToParent, frozen=True, tag="heartbeat"):
    """From the worker's loop: alive, and how much there is to do (turns; outbox operations). ``parked`` turns, which
    wait for a limit or a budget, are among the queued ones; ``followed`` pull requests keep it awake unless its place
    is needed. All of it is the worker's own claim."""

    running: Count = 0
    queued: Count = 0
    waiting: Count = 0
    parked: Count = 0
    outbox: Count = 0
    followed: Count = 0


class Log(_ToParent, frozen=True, tag="log"):
    """A log record; the parent writes it under the repo's name."""

    tag: LogTag
    text: str


class Audit(_ToParent, frozen=True, tag="audit"):
    """Something was executed: goes to the audit log."""

    user: PersonRef
    thread: str
    kind: str
    text: str
    decision: str
    exit_code: int | None = None
    duration_s: float | None = None


class Overview(_ToParent, frozen=True, tag="overview"):
    """The newest turns here, those first that need somebody; sent when they change."""

    turns: Annotated[tuple[TurnNote, ...], Meta(max_length=100)]


class LimitUse(Struct, frozen=True, kw_only=True):
    """How much of one daily limit is used."""

    unit: Unit
    used: Amount
    limit: Amount


class DayUse(Struct, frozen=True, kw_only=True):
    """What agents have used in a repository in a day, whoever asked. ``runs``: those that began."""

    runs: Count = 0
    tokens: Annotated[int, Meta(ge=0, le=10**15)] = 0
    usd: Amount = 0.0
    minutes: Amount = 0.0


class Budget(_ToParent, frozen=True, tag="budget"):
    """What is used in the repository, and of its own limits, on the day that ends at ``until`` (ISO 8601, UTC); sent
    when it changes. The limits of a user, a thread or a job are shown to those who ask for them."""

    limits: Annotated[tuple[LimitUse, ...], Meta(max_length=20)] = ()
    until: ID = ""
    used: DayUse = DayUse()


class Goodbye(_ToParent, frozen=True, tag="goodbye"):
    """The last message: everything is committed, the process ends."""

    reason: str


ToWorker = (
    Configure
    | TotalUse
    | Deliver
    | Sent
    | SendFailed
    | StopTurns
    | FileChunk
    | FileTranscript
    | ThreadFetched
    | FetchFailed
    | Question
    | LookAtPulls
    | Shutdown
)
ToParent = (
    Hello
    | Ready
    | Stored
    | Send
    | TurnStarted
    | TurnEnded
    | UploadPiece
    | Fetch
    | FetchThread
    | Doing
    | Live
    | Heartbeat
    | Log
    | Audit
    | Overview
    | Budget
    | Told
    | Traced
    | Goodbye
)


Level = Literal["ok", "warn", "FAIL"]


class Finding(Struct, frozen=True, kw_only=True):
    """One line of `codebutler doctor`: the state of ``subject`` in ``area`` and, unless all is well, what to do."""

    area: str
    subject: str
    level: Level
    text: str


def ok(area: str, subject: str, text: str) -> Finding:
    """All is well."""
    return Finding(area=area, subject=subject, level="ok", text=text)


def warn(area: str, subject: str, text: str) -> Finding:
    """It works, but a person should know about it."""
    return Finding(area=area, subject=subject, level="warn", text=text)


def fail(area: str, subject: str, text: str) -> Finding:
    """It does not work until a person does something."""
    return Finding(area=area, subject=subject, level="FAIL", text=text)
