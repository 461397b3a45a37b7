"""Every message between the parent and a worker. JSON over a pipe, never pickle: a worker is less trusted.

Changing a shape here means a new PROTOCOL_VERSION and a new golden file in ``tests/golden/protocol``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from codebutler.config.schema import RepoSettings
from codebutler.domain.model import Event, File, Operation, Quoted, Request, TurnNote, TurnOutcome
from codebutler.domain.refs import MessageRef, PersonRef
from codebutler.protocol.conversations import Question, Told
from codebutler.protocol.spans import TraceContext, Traced
from codebutler.text.amounts import Unit

PROTOCOL_VERSION = 5
MAX_FRAME_BYTES = 2 * 2**20
"""What is larger travels in pieces. JSON may cost twenty times its size once it is read (``[{},{},…]``)."""
MAX_DELIVERED_BYTES = 32 * 2**20
"""What the parent, which is trusted, may send at once: a message with all its text."""
MAX_UPLOAD_BYTES = 21 * 2**20
PIECE_BYTES = 2**19
MAX_FETCH_BYTES = 32 * 2**20
"""Larger files are refused: the worker holds one in memory until it is whole."""

StopReason = Literal["sleep", "shutdown", "restart"]
LiveKind = Literal["text", "writing", "tool", "plan", "note"]
MAX_COUNT = 1_000_000

ID = Annotated[str, Meta(max_length=100)]
"""Of an operation, a request, a file or a message: the parent keeps it, and says it again in its answer."""
MessageID = Annotated[MessageRef, Meta(max_length=100)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Amount = Annotated[float, Meta(ge=0, le=1e15)]
Messages = Annotated[tuple[MessageID, ...], Meta(max_length=10_000)]
LogTag = Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
"""Three letters: of a level, of what is told, or of the agent that works."""


class _ToWorker(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """From the parent."""


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
    """Your operation took effect; ``ref`` is the message's ("" where there is none). Or: who waited has heard of the
    end of your turn."""

    op_id: str
    ref: MessageRef


class SendFailed(_ToWorker, frozen=True, tag="send_failed"):
    """Your operation was refused for good; ``code`` is the chat's word for why."""

    op_id: str
    code: str


class StopTurns(_ToWorker, frozen=True, tag="stop_turns"):
    """End every running turn and withdraw every queued one; ``user`` is told as the one who stopped them."""

    user: PersonRef


class FileChunk(_ToWorker, frozen=True, tag="file_chunk"):
    """The next piece of the file you asked for by ``request_id``; ``last`` ends it (its data may be empty) and
    says what the chat knows of it, which the message may not."""

    request_id: str
    data: bytes
    last: bool = False
    file: File | None = None


class FileTranscript(_ToWorker, frozen=True, tag="file_transcript"):
    """Instead of a voice clip's content: what the chat's own transcription says was spoken."""

    request_id: str
    text: str


class ThreadFetched(_ToWorker, frozen=True, tag="thread_fetched"):
    """What was said in the thread you asked about, oldest first; ``left_out`` messages after the first are not in it.
    ``code`` is a word for why nothing came."""

    request_id: str
    said: tuple[Quoted, ...] = ()
    left_out: int = 0
    code: str = ""


class FetchFailed(_ToWorker, frozen=True, tag="fetch_failed"):
    """The file will not come, whatever came of it before; ``code`` is a word for why."""

    request_id: str
    code: str


class LookAtPulls(_ToWorker, frozen=True, tag="look_at_pulls"):
    """Look at these pull requests now, if they are followed; none = at all."""

    numbers: tuple[int, ...] = ()


class Shutdown(_ToWorker, frozen=True, tag="shutdown"):
    """Finish what is running within ``grace_s`` seconds, then say Goodbye and exit."""

    reason: StopReason
    grace_s: float


class _ToParent(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """From a worker."""


class Hello(_ToParent, frozen=True, tag="hello"):
    """The first message: alive, and which protocol is spoken."""

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
    """These messages are being worked on. Told once: if the worker dies, they come with TurnEnded."""

    thread: MessageID
    messages: Messages


class TurnEnded(_ToParent, frozen=True, tag="turn_ended"):
    """These messages (none where the chat shows none) have their outcome, and what answers them is in the
    chat; only of what was interrupted is told at once. ``agent``: whose turn it was, "" where no agent ran. Answered by
    Sent.

    It is a row of the worker's outbox, written with the outcome itself and told again at each start until it is
    answered: whichever of us dies, nobody waits for ever. So it may come twice.
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
    FileTranscript and FetchFailed. The parent looks the address up itself. ``request_id`` is new each time: what
    still comes of a request that was given up must not get into the next one's file."""

    request_id: ID
    file_id: ID


class Doing(_ToParent, frozen=True, tag="doing"):
    """What is done in a thread now, to be shown under it while it lasts; "" = nothing any more. Not kept."""

    thread: MessageID
    text: str


class Live(_ToParent, frozen=True, tag="live"):
    """What a running turn says and does, as it comes, for who listens at this machine. Not kept, not posted.

    ``writing`` is what there is so far of a block of prose, which ``text`` then says whole."""

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
    is needed. It is the worker's word."""

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
    when it changes. Limits of a user, a thread or a job are told where they are asked for."""

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
    """One line of `codebutler doctor`: how ``subject`` of ``area`` is, and, unless it is well, what to do."""

    area: str
    subject: str
    level: Level
    text: str


def ok(area: str, subject: str, text: str) -> Finding:
    """All is well."""
    return Finding(area=area, subject=subject, level="ok", text=text)


def warn(area: str, subject: str, text: str) -> Finding:
    """It works, and somebody should know."""
    return Finding(area=area, subject=subject, level="warn", text=text)


def fail(area: str, subject: str, text: str) -> Finding:
    """It does not work until something is done."""
    return Finding(area=area, subject=subject, level="FAIL", text=text)
