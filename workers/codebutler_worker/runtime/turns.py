"""The life of a turn, as data; which conversation and agent are meant; and what a transaction leaves to be done. Pure.

A turn's new state is written before anything is done about it, so a crash finds the truth on disk. An
agent run cannot be repeated: a turn that was running when its worker died is *interrupted*, and a person
decides what becomes of it. One whose agent was refused by its service, or for which a budget leaves no room, is
*parked* until the service takes it again, or a new day begins: another turn then goes on with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from codebutler.config.permission import ANY_AGENT, Prefixes, Where
from codebutler.config.programs import program_of
from codebutler.config.schema import AgentName, Config
from codebutler.domain.errors import CodeButlerError
from codebutler.protocol.messages import Audit, LogTag
from codebutler_worker.present.lines import LINE_LIMIT, one_line
from codebutler_worker.store.rows import DeferredRow, TurnRow, TurnState
from codebutler_worker.store.unit_of_work import UnitOfWork

TurnEvent = Literal["start", "ask", "answered", "finish", "fail", "stop", "interrupt", "park"]

STATES: tuple[TurnState, ...] = get_args(TurnState)
EVENTS: tuple[TurnEvent, ...] = get_args(TurnEvent)
LIVE: tuple[TurnState, ...] = ("running", "waiting")
UNFINISHED: tuple[TurnState, ...] = ("queued", "running", "waiting", "parked")

MOVES: dict[TurnState, dict[TurnEvent, TurnState]] = {
    "queued": {"start": "running", "stop": "stopped", "park": "parked"},
    "running": {
        "ask": "waiting",
        "finish": "done",
        "fail": "failed",
        "stop": "stopped",
        "interrupt": "interrupted",
        "park": "parked",
    },
    "waiting": {
        "answered": "running",
        "finish": "done",
        "fail": "failed",
        "stop": "stopped",
        "interrupt": "interrupted",
        "park": "parked",
    },
    "interrupted": {"stop": "stopped"},
    # Begun only in a store that was restored: whether it went on since is not known, so a person is asked.
    "parked": {"stop": "stopped", "start": "running"},
    "done": {},
    "failed": {},
    "stopped": {},
}
IMAGE = "image"
"""The agent behind ``!create-image``."""
CHECKS = "checks"
"""The agent behind ``!checks``."""
UNDO = "undo"
"""The agent behind ``!undo``."""
WORDLESS = frozenset({IMAGE, CHECKS, UNDO})
"""Agents of ours, which take what was said as it is and keep no session."""
_AGENT_OF_PREFIX = {"agent": "native"}
_TAGS = {"claude": "CLD", "rehearsal": "CLD", "kimi": "KMI", "native": "NAT"}
"""Who works, in the log. The rehearsal agent stands in for Claude Code."""
_TAKEN = frozenset({*_TAGS.values(), "INF", "WRN", "ERR", "DBG", "MSG", "RSP", "MEM"})
OTHER_TAG = "AGT"


class IllegalMoveError(CodeButlerError):
    """A turn cannot go there from where it is."""


def move(state: TurnState, event: TurnEvent) -> TurnState:
    """The state after ``event``. Raises IllegalMoveError where the life of a turn knows no such move."""
    if (after := MOVES[state].get(event)) is None:
        raise IllegalMoveError(f"a {state} turn cannot take {event!r}")
    return after


@dataclass(frozen=True, slots=True)
class Steer:
    """Try to put the queued turn's messages into the running turn."""

    running_id: str
    queued_id: str


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """A decision on its way to a turn's agent."""

    turn_id: str
    approval_id: str
    allow: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Typed:
    """A message that is to be typed into the session of a running turn."""

    turn_id: str
    channel: str
    ts: str
    text: str


@dataclass(frozen=True, slots=True)
class Todo:
    """What remains to be done outside the transaction, once it is committed. ``forced``: stop at once, without
    asking first; ``stopped_by``: who is told in the thread as the one who stopped it; ``forgotten``: conversations
    that begin anew; ``begins``: the thread of a run that is about to begin."""

    stop: tuple[str, ...] = ()
    forced: bool = False
    stopped_by: str = ""
    deferred: tuple[DeferredRow, ...] = ()
    answers: tuple[ApprovalAnswer, ...] = ()
    steer: tuple[Steer, ...] = ()
    typed: tuple[Typed, ...] = ()
    forgotten: tuple[str, ...] = ()
    begins: str = ""
    log: tuple[tuple[LogTag, str], ...] = ()
    audit: tuple[Audit, ...] = ()

    def logged(self, tag: LogTag, text: str) -> Todo:
        """The same, with one line more for the log."""
        return replace(self, log=(*self.log, (tag, text)))


def tag_of(config: Config, agent: str) -> LogTag:
    """The tag of an agent's own lines in the log: of one that is configured the first three letters of its prefix. A
    program or a command of ours is none."""
    if agent in WORDLESS or program_of(config, agent) is not None:
        return "INF"
    letters = "".join(sign for sign in agent.upper() if sign.isascii() and sign.isalpha())[:3]
    own = letters if len(letters) == 3 and letters not in _TAKEN else OTHER_TAG
    return _TAGS.get(agent, own)


def conversation_id(config: Config, channel: str, root_ts: str) -> str:
    """One conversation per thread, or (``agent.scope`` "channel") one for the channel."""
    return f"{channel}:" if config.agent.scope == "channel" else f"{channel}:{root_ts}"


def agent_name(config: Config, prefix: str | None) -> str:
    """The agent behind a typed prefix; no prefix means the repository's default."""
    if prefix is None:
        return config.agent.default
    return _AGENT_OF_PREFIX.get(prefix, prefix)


def prefixes_of(agent: str) -> Prefixes:
    """The words by which people, and the rules about them, name an agent; any for undoing, which is nobody's: who
    may undo a turn may undo that too."""
    if agent == UNDO:
        return ANY_AGENT
    return (agent, *(prefix for prefix, name in _AGENT_OF_PREFIX.items() if name == agent))


def using(config: Config, channel: str, agent: str, text: str = "") -> Where:
    """Where somebody is about to use an agent there, perhaps saying ``text`` to it: what ``may`` judges."""
    return Where(config, channel, prefixes_of(agent), text)


def talks(config: Config, agent: str) -> bool:
    """Whether it reads prose: a shell or a picture's description takes no record."""
    own = {agent_name(config, rule.prefix) for rule in config.commands if rule.mode in ("headless", "acp")}
    return agent in own | set(get_args(AgentName))


def audit_of(
    turn: TurnRow,
    text: str,
    decision: str,
    *,
    user: str | None = None,
    exit_code: int | None = None,
    duration_s: float | None = None,
) -> Audit:
    """A line for the audit log; ``user`` where it is not whoever asked for the turn."""
    return Audit(
        user=turn.user_id if user is None else user,
        thread=turn.thread_ts,
        kind=turn.agent,
        text=one_line(text, 1000),
        decision=decision,
        exit_code=exit_code,
        duration_s=duration_s,
    )


def words_of(uow: UnitOfWork, turn: TurnRow, limit: int = LINE_LIMIT) -> str:
    """The first words of what the turn was asked."""
    messages = uow.messages.of_turn(turn.id)
    return one_line(messages[0].content, limit) if messages else ""
