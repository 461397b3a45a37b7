"""The messages on the control socket: requests, inputs and replies, one JSON object per line.

A request gets any number of Said, then Done, Failed or a status. A chat goes both ways: after its request come inputs,
until one side closes.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from codebutler.domain.model import TurnOutcome
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef
from codebutler.protocol.messages import LiveKind

NO_CARD = MessageRef("0.0")
"""Sorts before every card's ref."""
SaidKind = Literal["text", "progress", "card"]


class _Request(Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """A request of a command."""


class StatusRequest(_Request, frozen=True, tag="status"):
    """Asks for the status."""


class StopRequest(_Request, frozen=True, tag="stop"):
    """End the turns of one repository, or of ``all``."""

    repo: str


class SendRequest(_Request, frozen=True, tag="send"):
    """Post ``text`` in the repository's channel as the operator; ``wait`` streams the answers."""

    repo: str
    text: str
    wait: bool = False
    thread: MessageRef | None = None


class ReloadRequest(_Request, frozen=True, tag="reload"):
    """The registry or a configuration has changed: read them again."""


class RestartRequest(_Request, frozen=True, tag="restart"):
    """Restart in place."""


class JobsRequest(_Request, frozen=True, tag="jobs"):
    """List the schedule; or run, pause or resume the job ``name`` (``repo/name`` if several have it)."""

    action: Literal["list", "run", "pause", "resume"] = "list"
    name: str = ""


class DashboardRequest(_Request, frozen=True, tag="dashboard"):
    """Asks for a link that opens the dashboard."""


class ChatRequest(_Request, frozen=True, tag="chat"):
    """Write and read everything in one thread, a new one if none is named. Its last ``past`` messages come first."""

    repo: str
    thread: MessageRef | None = None
    past: int = 0


class Say(_Request, frozen=True, tag="say"):
    """In a chat: the operator says this. ``seen``: the newest card that was shown when typing began; the words cannot
    decide a later one."""

    text: str
    seen: MessageRef = NO_CARD


class Press(_Request, frozen=True, tag="press"):
    """In a chat: press a button of the message ``ref``; ``picked`` are the boxes ticked beside it."""

    ref: MessageRef
    action_id: str
    value: str
    picked: tuple[str, ...] = ()


class _Reply(Struct, frozen=True, kw_only=True, tag_field="type"):
    """A reply of the supervisor."""


class StatusReply(_Reply, frozen=True, tag="status"):
    """The status object, as ``status --json`` prints it."""

    status: dict[str, Any]


class JobsReply(_Reply, frozen=True, tag="jobs"):
    """One row per job."""

    jobs: list[dict[str, Any]]


class DashboardReply(_Reply, frozen=True, tag="dashboard"):
    """The dashboard's address, and the same with a one-time login."""

    url: str
    link: str


class Posted(_Reply, frozen=True, tag="posted"):
    """The operator's message is in the channel; its ref starts or continues the thread."""

    channel: ConversationRef
    ref: MessageRef
    thread: MessageRef


class Choice(Struct, frozen=True, kw_only=True):
    """A button of a card, or a ``box`` to tick before the button below it is pressed."""

    label: str
    action_id: str
    value: str
    box: bool = False


class Said(_Reply, frozen=True, tag="said"):
    """Something was said in the thread; the same ``ref`` again replaces it. ``progress``: of passing interest, a turn's
    place in the queue or its current step. A ``card`` waits for one of its ``choices`` while it has any; the choices of
    any other message stop what it reports."""

    text: str
    kind: SaidKind = "text"
    ref: MessageRef = NOWHERE
    choices: tuple[Choice, ...] = ()


class Heard(_Reply, frozen=True, tag="heard"):
    """What the running turn in a chat's thread says and does, as it happens. The answer repeats the text."""

    kind: LiveKind
    text: str


class Past(_Reply, frozen=True, tag="past"):
    """An earlier message of a chat's thread, or one that another person writes there; ``who`` is "" for our own."""

    who: str
    text: str


class ChatOpened(_Reply, frozen=True, tag="opened"):
    """The chat can begin; the earlier messages have been sent. ``thread`` is None if a new one begins."""

    repo: str
    agent: str
    thread: MessageRef | None = None


class Working(_Reply, frozen=True, tag="started"):
    """In a chat: the operator's message ``ref`` is being worked on."""

    ref: MessageRef


class Ended(_Reply, frozen=True, tag="ended"):
    """In a chat: the operator's message ``ref`` has had its outcome; "" if no turn was made of it."""

    ref: MessageRef
    outcome: TurnOutcome


class Done(_Reply, frozen=True, tag="done"):
    """The last reply. ``ok`` is the turn's verdict, if one was waited for."""

    ok: bool = True
    text: str = ""


class Failed(_Reply, frozen=True, tag="failed"):
    """The request failed; ``text`` is the line to show."""

    text: str


ControlRequest = (
    StatusRequest
    | StopRequest
    | SendRequest
    | ReloadRequest
    | RestartRequest
    | JobsRequest
    | DashboardRequest
    | ChatRequest
)
ChatInput = Say | Press
ControlReply = (
    StatusReply
    | JobsReply
    | DashboardReply
    | Posted
    | Said
    | Heard
    | Past
    | ChatOpened
    | Working
    | Ended
    | Done
    | Failed
)
