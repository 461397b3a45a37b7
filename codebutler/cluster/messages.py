"""Every message between the gateway and a host. Encoded as msgpack, so that files travel as they are.

What the gateway says names the host that it is for: a subject alone does not prove that, since the server also sends to
the reply subjects that others name. ``epoch`` is the sender's: a receiver that knows a later one refuses it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import ProtocolError
from codebutler.domain.model import Event, File, Operation, Quoted, Request
from codebutler.domain.refs import NOWHERE, MessageRef, PersonRef
from codebutler.domain.version import VERSION
from codebutler.protocol.conversations import Question as WorkerQuestion
from codebutler.protocol.conversations import Told
from codebutler.protocol.hosts import HostReport
from codebutler.protocol.messages import ID, TotalUse, TurnEnded
from codebutler.protocol.spans import Traced
from codebutler.supervisor.port import News as Reported
from codebutler.supervisor.supervisor import RepoRow

CLUSTER_VERSION = 1
MAX_WHY_CHARS = 10_000
RepoName = Annotated[str, Meta(max_length=200)]
CallId = Annotated[str, Meta(pattern=r"^[0-9A-Za-z]{1,64}\Z")]
"""The gateway's answer has it in a header."""
DROPPED = "dropped"
"""The code of an event that is not to be taken."""

M = TypeVar("M")


class _ClusterMessage(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Of either side. A field that a later version adds has a default, and is passed over by an earlier one."""

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
    """What became of the call ``call``; with ``code`` or ``text`` it failed for good."""

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
    """An event that a gateway sent which leads no more: the leader decides whether the host takes it (``DROPPED``)."""

    call: CallId
    repo: RepoName
    event: Event
    request: Request
    received_at: datetime


class ReportCall(_ClusterMessage, frozen=True, tag="report"):
    """Note this of the repository."""

    call: CallId
    repo: RepoName
    report: HostReport


Call = SendCall | EndedCall | DownCall | ReturnedCall | ReportCall


# From a host to the gateway, not kept.


class HostNews(_ClusterMessage, frozen=True, tag="news"):
    """What a worker reports as it happens. With times in it: ``at`` is now by the host's clock, in nanoseconds since
    the epoch."""

    repo: str
    news: Reported
    at: int = 0

    def told(self, now: datetime) -> Reported:
        """The news, with its times by our clock, which is ``now``."""
        if not isinstance(self.news, Traced):
            return self.news
        by = int(now.timestamp() * 1_000_000) * 1000 - self.at
        spans = tuple(
            structs.replace(each, began=each.began + by, ended=each.ended + by) for each in self.news.spans
        )
        return structs.replace(self.news, spans=spans)


class StandingBy(_ClusterMessage, frozen=True, tag="standing-by"):
    """A gateway, of no epoch, waits until it may lead. ``machine``: the name of its machine."""

    instance: str
    machine: str
    version: str


# Questions of a host, each answered at once.


class Beat(_ClusterMessage, frozen=True, tag="beat"):
    """Alive. ``instance`` is new for each process; ``rows`` say how its repositories are; ``known`` is the digest of
    the assignment that it has. ``epoch`` is 0 until it was granted one. ``leaves``: it ends, so another may begin.
    ``release``: its version of CodeButler. ``totals``: which of the gateway's totals it has; ``runs``: likewise.
    ``has``: the names of all repositories registered there, whether they are its own or not; None if it does not
    say."""

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
    """Piece ``number`` of a file: the one after the last answer, or that one again. Piece 0 starts the download."""

    repo: str
    request: ID
    file_id: ID
    number: int


class ThreadQuestion(_ClusterMessage, frozen=True, tag="thread"):
    """What was said in a thread before ``before``."""

    repo: str
    thread: MessageRef
    before: MessageRef


HostQuestion = Beat | FetchQuestion | ThreadQuestion


class Granted(_ClusterMessage, frozen=True, tag="granted"):
    """The host's ``host_epoch``; and its repositories, and for each that has a budget with all others what those have
    used, unless it knows that already. ``totals_known`` names this state of them. ``runs``: of which runs the gateway
    knows, by repository, unless the host was told by this gateway for these repositories; ``runs_known`` names that."""

    host_epoch: int
    digest: str
    repos: tuple[RepoSettings, ...] | None = None
    totals: dict[str, TotalUse] | None = None
    totals_known: str = ""
    runs: dict[str, str] | None = None
    runs_known: str = ""


class Refused(_ClusterMessage, frozen=True, tag="refused"):
    """It may not go on: another process is this host, which may end (``for_now``), or its version does not fit."""

    why: str
    for_now: bool = False


class FilePiece(_ClusterMessage, frozen=True, tag="piece"):
    """A piece of a file; the ``last`` one has what the chat knows of it."""

    data: bytes = b""
    last: bool = False
    file: File | None = None
    transcript: str = ""


class ThreadSaid(_ClusterMessage, frozen=True, tag="said"):
    """The messages of a thread."""

    said: tuple[Quoted, ...]
    left_out: int


class NotDone(_ClusterMessage, frozen=True, tag="failed"):
    """Why there is no answer; ``code`` is the chat's word."""

    code: str
    text: str


Reply = Granted | Refused | FilePiece | ThreadSaid | NotDone


# Orders of the gateway to a host, each answered at once.


class StopOrder(_ClusterMessage, frozen=True, tag="stop"):
    """End all runs of the repository, as ``user`` asked."""

    repo: str
    user: PersonRef


class AskOrder(_ClusterMessage, frozen=True, tag="ask"):
    """Ask the repository's worker."""

    repo: str
    question: WorkerQuestion


class LookOrder(_ClusterMessage, frozen=True, tag="look"):
    """There is news of these pull requests, none = of any."""

    repo: str
    numbers: tuple[int, ...]


class WorkerOrder(_ClusterMessage, frozen=True, tag="worker"):
    """Wake the repository's worker, or restart it."""

    repo: str
    how: Literal["wake", "restart"]


Order = StopOrder | AskOrder | LookOrder | WorkerOrder


class OrderDone(_ClusterMessage, frozen=True, tag="done"):
    """What came of an order; ``problem`` says why nothing did."""

    told: Told | None = None
    problem: str = ""


# From a command at the gateway to the one that leads.


class HostRemoved(_ClusterMessage, frozen=True, tag="removed"):
    """The host belongs to the cluster no more: ``waited`` counts the events that it had not taken, by repository,
    ``calls`` what it had said and nobody had done."""

    host: str
    waited: dict[str, int]
    calls: int = 0


class ClusterCodec(Generic[M]):
    """Reads messages of one union, and writes any."""

    def __init__(self, kind: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(kind)

    def decode(self, body: bytes) -> M:
        """Raises ProtocolError for anything else."""
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"unreadable message from the cluster: {error}") from error


def encode(message: _ClusterMessage) -> bytes:
    """The message's body."""
    return msgspec.msgpack.encode(message)


def misfit(host: int, gateway: int, *, name: str, release: str) -> str:
    """Why a gateway of that version cannot serve the host ``name`` of that one, and what to do; "" if it can.
    ``release``: the host's, "" if it does not say. A message of the version before stays readable: what is added has
    a default, and what is unknown is ignored."""
    runs = f"{name} runs CodeButler {release or 'of an unknown version'}"
    if host > gateway:
        return f"{runs}, too new for its gateway ({VERSION}): update CodeButler at the gateway first"
    if host < gateway - 1:
        return f"{runs}, too old for its gateway ({VERSION}): update CodeButler on {name}"
    return ""
