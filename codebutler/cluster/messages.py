"""Every message between the gateway and a host. Encoded as msgpack, so that files travel as they are.

The gateway's messages name the host that they are for: the subject alone does not prove that, since the server also
sends to reply subjects that others name. ``epoch`` is the sender's: a receiver that knows a later one refuses the
message.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field, structs

from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import ProtocolError
from codebutler.domain.model import Event, File, Operation, Quoted, Request
from codebutler.domain.refs import NOWHERE, MessageRef, PersonRef
from codebutler.domain.version import VERSION
from codebutler.protocol.capabilities import HostReport
from codebutler.protocol.conversations import Question as WorkerQuestion
from codebutler.protocol.conversations import Told, Traced
from codebutler.protocol.messages import ID, TotalUse, TurnEnded
from codebutler.supervisor.port import News as WorkerNews
from codebutler.supervisor.supervisor import RepoRow

CLUSTER_VERSION = 1
MAX_WHY_CHARS = 10_000
RepoName = Annotated[str, Meta(max_length=200)]
CallId = Annotated[str, Meta(pattern=r"^[0-9A-Za-z]{1,64}\Z")]
"""The ID of a call. It must fit a message header, since the gateway's answer carries it there."""
DROPPED = "dropped"
"""The code for an event that must not be taken."""

M = TypeVar("M")

HEARTBEAT_S = 2.0
"""How often a host says that it is alive."""


class _ClusterMessage(Struct, frozen=True, kw_only=True, tag_field="type"):
    """A message of either side. Fields added in a later version have defaults, and earlier versions ignore them."""

    epoch: int


# From the gateway to a host, kept until the host has it on its disk.


class EventForHost(_ClusterMessage, frozen=True, tag="event"):
    """An accepted event of a repository; acknowledged once the worker has it in its store. ``trace``: the context of
    the event's trace, "" without one."""

    host: str
    repo: str
    event: Event
    request: Request
    received_at: datetime
    trace: str = ""


class CallAnswer(_ClusterMessage, frozen=True, tag="answer"):
    """The outcome of the call ``call``; with ``code`` or ``text``, it failed for good."""

    host: str
    call: str
    ref: MessageRef = NOWHERE
    failed: bool = False
    code: str = ""
    text: str = ""


ToHost = EventForHost | CallAnswer


# From a host to the gateway, kept until the gateway has done it. A call is answered.


class SendCall(_ClusterMessage, frozen=True, tag="send"):
    """Do this in the repository's channel. ``unsure``: it may have been done before, so look first."""

    call: CallId
    repo: RepoName
    op_id: ID
    operation: Operation
    unsure: bool


class EndedCall(_ClusterMessage, frozen=True, tag="ended"):
    """A run has its outcome."""

    call: CallId
    repo: RepoName
    ended: TurnEnded


class DownCall(_ClusterMessage, frozen=True, tag="down"):
    """The repository's worker stays down."""

    call: CallId
    repo: RepoName
    why: Annotated[str, Meta(max_length=MAX_WHY_CHARS)]


class ReturnedCall(_ClusterMessage, frozen=True, tag="returned"):
    """An event sent by a gateway that no longer leads: the leader decides whether the host takes it (``DROPPED``:
    no)."""

    call: CallId
    repo: RepoName
    event: Event
    request: Request
    received_at: datetime


class ReportCall(_ClusterMessage, frozen=True, tag="report"):
    """A report about the repository."""

    call: CallId
    repo: RepoName
    report: HostReport


Call = SendCall | EndedCall | DownCall | ReturnedCall | ReportCall


# From a host to the gateway, not kept.


class HostNews(_ClusterMessage, frozen=True, tag="news"):
    """What a worker reports as it happens. ``at``, for news with times: the present time by the host's clock, in
    nanoseconds since 1970."""

    repo: str
    news: WorkerNews
    at: int = 0

    def with_local_times(self, now: datetime) -> WorkerNews:
        """The news, with its times by our clock, which is ``now``."""
        if not isinstance(self.news, Traced):
            return self.news
        by = int(now.timestamp() * 1_000_000) * 1000 - self.at
        spans = tuple(
            structs.replace(each, began=each.began + by, ended=each.ended + by) for each in self.news.spans
        )
        return structs.replace(self.news, spans=spans)


class StandingBy(_ClusterMessage, frozen=True, tag="standing-by"):
    """A gateway, which has no epoch yet, waits until it may lead. ``machine``: the name of its machine."""

    instance: str
    machine: str
    version: str


# Questions of a host, each answered at once.


class HostHeartbeat(_ClusterMessage, frozen=True, tag="beat"):
    """The host is alive. ``instance`` is new for each process; ``rows``: the states of its repositories; ``known``: the
    digest of the assignment that it has. ``epoch`` is 0 until one was granted. ``leaves``: it ends, so another process
    may begin. ``release``: its version of CodeButler. ``totals`` and ``runs``: which state of these it has from the
    gateway. ``has``: the names of all repositories registered there, assigned to it or not; None if it does not say."""

    version: int
    instance: ID
    rows: tuple[RepoRow, ...] = ()
    outbox: int = 0
    known: ID = ""
    leaves: bool = False
    release: Annotated[str, Meta(max_length=40)] = ""
    totals: Annotated[str, Meta(max_length=200)] = ""
    runs: Annotated[str, Meta(max_length=200)] = ""
    has: tuple[RepoName, ...] | None = None


class FetchQuestion(_ClusterMessage, frozen=True, tag="fetch"):
    """Asks for piece ``number`` of a file: the next one, or the last one again. Piece 0 starts the download."""

    repo: str
    request: ID
    file_id: ID
    number: int


class ThreadQuestion(_ClusterMessage, frozen=True, tag="thread"):
    """Asks for the messages of a thread before ``before``."""

    repo: str
    thread: MessageRef
    before: MessageRef


HostQuestion = HostHeartbeat | FetchQuestion | ThreadQuestion


class Granted(_ClusterMessage, frozen=True, tag="granted"):
    """The host's ``host_epoch`` and, unless it has them already: its repositories; the ``totals`` that the other
    repositories have used, for each that shares a budget; and ``runs``, by repository the latest run that the gateway
    knows. ``totals_known`` and ``runs_known`` name this state of the last two."""

    host_epoch: int
    digest: str
    repos: tuple[RepoSettings, ...] | None = None
    totals: dict[str, TotalUse] | None = None
    totals_known: str = ""
    runs: dict[str, str] | None = None
    runs_known: str = ""


class Refused(_ClusterMessage, frozen=True, tag="refused"):
    """The host must not continue: another process acts as this host, which may end (``for_now``), or its version does
    not fit."""

    why: str
    for_now: bool = False


class FilePiece(_ClusterMessage, frozen=True, tag="piece"):
    """A piece of a file; the ``last`` one has the file's details from the chat."""

    data: bytes = b""
    last: bool = False
    file: File | None = None
    transcript: str = ""


class ThreadMessages(_ClusterMessage, frozen=True, tag="said"):
    """The messages of a thread."""

    messages: tuple[Quoted, ...] = field(name="said")
    left_out: int


class RequestFailed(_ClusterMessage, frozen=True, tag="failed"):
    """Why there is no answer; ``code`` is the chat's."""

    code: str
    text: str


Reply = Granted | Refused | FilePiece | ThreadMessages | RequestFailed


# Orders of the gateway to a host, each answered at once.


class StopOrder(_ClusterMessage, frozen=True, tag="stop"):
    """End all runs of the repository, as ``user`` asked."""

    repo: str
    user: PersonRef


class AskOrder(_ClusterMessage, frozen=True, tag="ask"):
    """Ask the repository's worker."""

    repo: str
    question: WorkerQuestion


class CheckPullsOrder(_ClusterMessage, frozen=True, tag="look"):
    """There is news of these pull requests, none = of any."""

    repo: str
    numbers: tuple[int, ...]


class WorkerOrder(_ClusterMessage, frozen=True, tag="worker"):
    """Wake the repository's worker, or restart it."""

    repo: str
    how: Literal["wake", "restart"]


Order = StopOrder | AskOrder | CheckPullsOrder | WorkerOrder


class OrderDone(_ClusterMessage, frozen=True, tag="done"):
    """The result of an order; ``problem`` says why it failed."""

    answer: Told | None = field(default=None, name="told")
    problem: str = ""


# From a command at the gateway to the one that leads.


class HostRemoved(_ClusterMessage, frozen=True, tag="removed"):
    """The host no longer belongs to the cluster. ``waited``: how many events it had not taken, by repository;
    ``calls``: how many of its calls were not carried out."""

    host: str
    waited: dict[str, int]
    calls: int = 0


class ClusterCodec(Generic[M]):
    """Reads messages of one union, and writes any."""

    def __init__(self, kind: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(kind)

    def decode(self, body: bytes) -> M:
        """A message of the union. Raises ProtocolError for anything else."""
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"unreadable message from the cluster: {error}") from error


def encode(message: _ClusterMessage) -> bytes:
    """The message's body."""
    return msgspec.msgpack.encode(message)


def incompatibility(host: int, gateway: int, *, name: str, release: str) -> str:
    """Why a gateway of the protocol version ``gateway`` cannot serve the host ``name`` of version ``host``, and what to
    do; "" if it can. ``release``: the host's version of CodeButler, "" if it does not say. Messages of the previous
    version stay readable: added fields have defaults, and unknown ones are ignored."""
    runs = f"{name} runs CodeButler {release or 'of an unknown version'}"
    if host > gateway:
        return f"{runs}, too new for its gateway ({VERSION}): update CodeButler at the gateway first"
    if host < gateway - 1:
        return f"{runs}, too old for its gateway ({VERSION}): update CodeButler on {name}"
    return ""
