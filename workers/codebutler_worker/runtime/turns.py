"""The life of a turn, as data; its conversation and agent; and what a transaction leaves to be done. Without I/O:
what has to be read comes from the unit of work that is given.

A turn's new state is committed before anything is done about it, so a crash finds the truth on disk. An agent
run cannot be repeated: a turn that was running when its worker died is *interrupted*, and a person decides
what happens. A turn refused by its agent's service, or above a budget, is *parked* until the service accepts
it, or a new day starts: another turn then continues it.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.chats import message_url
from codebutler.config.permission import ALLOWED, ANY_AGENT, Decision, Prefixes, Where, admitted, may
from codebutler.config.programs import (
    CONFIGURED,
    MODES,
    UNDO,
    Choice,
    Mode,
    is_headless,
    is_looser,
    program_of,
    uses_model,
)
from codebutler.config.schema import AgentName, Config
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import NO_PERSON, NOWHERE, ConversationRef, MessageRef, PersonRef
from codebutler.protocol.messages import Audit, LogTag
from codebutler.text.wording import LINE_LIMIT, one_line
from codebutler_worker.store.rows import (
    ChoiceRow,
    DeferredRow,
    MessageRow,
    TurnRow,
    TurnState,
    main_conversation,
    message_id,
    race_in,
)
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
    # Only in a restored store: nobody knows whether it went on since, so a person is asked.
    "parked": {"stop": "stopped", "start": "running"},
    "done": {},
    "failed": {},
    "stopped": {},
}
IMAGE = "image"
"""The agent behind ``!create-image``."""
CHECKS = "checks"
"""The agent behind ``!checks``."""
WORDLESS = frozenset({IMAGE, CHECKS, UNDO})
"""Our own agents, which take a message as it is and keep no session."""
_AGENT_OF_PREFIX = {"agent": "native"}
_TAGS = {"claude": "CLD", "rehearsal": "CLD", "kimi": "KMI", "native": "NAT"}
"""The agent's name in the log. The rehearsal agent stands in for Claude Code."""
_TAKEN = frozenset({*_TAGS.values(), "INF", "WRN", "ERR", "DBG", "MSG", "RSP", "MEM"})
OTHER_TAG = "AGT"


class IllegalMoveError(CodeButlerError):
    """The turn's state does not allow this event."""


def move(state: TurnState, event: TurnEvent) -> TurnState:
    """The state after ``event``. Raises IllegalMoveError if the state does not allow it."""
    if (after := MOVES[state].get(event)) is None:
        raise IllegalMoveError(f"a {state} turn cannot take {event!r}")
    return after


class Steer(Struct, frozen=True):
    """Try to put the queued turn's messages into the running turn."""

    running_id: str
    queued_id: str


class ApprovalAnswer(Struct, frozen=True):
    """A decision for a turn's agent."""

    turn_id: str
    approval_id: str
    allow: bool
    text: str = ""


class Typed(Struct, frozen=True):
    """A message to type into the session of a running turn."""

    turn_id: str
    channel: ConversationRef
    ref: MessageRef
    text: str


class Todo(Struct, frozen=True):
    """What to do once the transaction is committed. ``forced``: stop at once, without asking; ``stopped_by``:
    who is named in the thread as the one who stopped it; ``forgotten``: conversations that start over;
    ``withdrawn``: deferred commands to cancel; ``begins``: the thread of a run that is about to start."""

    stop: tuple[str, ...] = ()
    forced: bool = False
    stopped_by: PersonRef = NO_PERSON
    deferred: tuple[DeferredRow, ...] = ()
    withdrawn: tuple[str, ...] = ()
    answers: tuple[ApprovalAnswer, ...] = ()
    steer: tuple[Steer, ...] = ()
    typed: tuple[Typed, ...] = ()
    forgotten: tuple[str, ...] = ()
    begins: MessageRef = NOWHERE
    log: tuple[tuple[LogTag, str], ...] = ()
    audit: tuple[Audit, ...] = ()

    def logged(self, tag: LogTag, text: str) -> Todo:
        """The same, with one more line for the log."""
        return replace(self, log=(*self.log, (tag, text)))


def tag_of(config: Config, agent: str) -> LogTag:
    """The tag of an agent's lines in the log: for a configured agent the first three letters of its prefix.
    Programs and our own commands have none."""
    if agent in WORDLESS or program_of(config, agent) is not None:
        return "INF"
    letters = "".join(sign for sign in agent.upper() if sign.isascii() and sign.isalpha())[:3]
    own = letters if len(letters) == 3 and letters not in _TAKEN else OTHER_TAG
    return _TAGS.get(agent, own)


def conversation_id(config: Config, channel: ConversationRef, root: MessageRef) -> str:
    """One conversation per thread, or (``agent.scope`` "channel") one for the channel."""
    return f"{channel}:" if config.agent.scope == "channel" else f"{channel}:{root}"


def own_tree(config: Config, conversation: str) -> str:
    """The conversation itself if its agent works in a worktree of its own, as in a race; "" if in the repository."""
    return conversation if config.agent.isolation == "worktree" or race_in(conversation) else ""


def agent_name(config: Config, prefix: str | None) -> str:
    """The agent behind a typed prefix; no prefix means the repository's default."""
    if prefix is None:
        return config.agent.default
    return _AGENT_OF_PREFIX.get(prefix, prefix)


def prefixes_of(agent: str) -> Prefixes:
    """The prefixes by which people and rules name an agent; any for undoing, which belongs to no agent: people who may
    undo a turn may undo that as well."""
    if agent == UNDO:
        return ANY_AGENT
    return (agent, *(prefix for prefix, name in _AGENT_OF_PREFIX.items() if name == agent))


def using(config: Config, channel: ConversationRef, agent: str, text: str = "") -> Where:
    """The place in which somebody is about to use an agent, perhaps with ``text``: the input of ``may``."""
    return Where(config, channel, prefixes_of(agent), text)


def talks(config: Config, agent: str) -> bool:
    """Whether it reads prose: a shell or an image description takes no record."""
    if not uses_model(config, agent):
        return False
    return agent in get_args(AgentName) or any(
        rule.prefix == agent and (rule.mode == "acp" or is_headless(rule)) for rule in config.commands
    )


def audit_of(
    turn: TurnRow,
    text: str,
    decision: str,
    *,
    user: PersonRef | None = None,
    exit_code: int | None = None,
    duration_s: float | None = None,
) -> Audit:
    """A line for the audit log; ``user`` if it is not the turn's author."""
    return Audit(
        user=turn.user_id if user is None else user,
        thread=turn.thread,
        kind=turn.agent,
        text=one_line(text, 1000),
        decision=decision,
        exit_code=exit_code,
        duration_s=duration_s,
    )


def words_of(uow: UnitOfWork, turn: TurnRow, limit: int = LINE_LIMIT) -> str:
    """The first words of the turn's request; in a race after the agent's name."""
    messages = uow.messages.find(turn_id=turn.id)
    name = f"{turn.agent}: " if race_in(turn.conversation) else ""
    return one_line(f"{name}{messages[0].content}", limit) if messages else ""


def thread_url(turn: TurnRow) -> str:
    """A link to the run's thread, into which sending puts the workspace; "" if it has no thread."""
    return message_url(turn.channel_id, turn.thread) if turn.thread else ""


def queue_after(
    uow: UnitOfWork, turn: TurnRow, agent: str, key: MessageRef, text: str, user: PersonRef
) -> None:
    """Queue a turn of ``agent`` about another turn, in its thread, for ``user``."""
    give_task(uow, follow_up(uow, turn, agent, user), key, text, agent)


def give_task(uow: UnitOfWork, turn: TurnRow, key: MessageRef, text: str, agent: str | None = None) -> None:
    """Write the message that asks for the turn; it is not shown in the chat. ``key`` identifies it. If it names the
    ``agent``, no other one may answer."""
    uow.messages.add(
        MessageRow(
            id=message_id(turn.channel_id, key),
            from_id=turn.user_id,
            channel_id=turn.channel_id,
            content=text,
            timestamp=uow.stamp,
            thread=turn.thread,
            turn_id=turn.id,
            agent=agent,
        )
    )


def follow_up(
    uow: UnitOfWork,
    turn: TurnRow,
    agent: str,
    user: PersonRef,
    *,
    reason: str | None = None,
    attempts: int = 0,
) -> TurnRow:
    """Queue a turn of ``agent`` that follows another one, in its thread and on ``user``'s account."""
    queued = TurnRow(
        id=uuid.uuid4().hex,
        conversation=turn.conversation,
        channel_id=turn.channel_id,
        thread=turn.thread,
        agent=agent,
        created_at=uow.stamp,
        not_before=uow.stamp,
        reason=reason,
        user_id=user,
        attempts=attempts,
        job=turn.job,
    )
    uow.turns.add(queued)
    return queued


# Which agent a message is for, and with which model and mode it runs: what its thread has chosen, else what is
# configured.


def agent_for(uow: UnitOfWork, config: Config, conversation: str, prefix: str | None) -> str:
    """The agent behind a typed prefix; without a prefix, the conversation's choice, unless that agent is no longer
    configured."""
    if prefix is not None:
        return _AGENT_OF_PREFIX.get(prefix, prefix)
    chosen = uow.choices.get(conversation)
    return chosen.agent if chosen and chosen.agent and talks(config, chosen.agent) else config.agent.default


def choice_for(uow: UnitOfWork, turn: TurnRow, config: Config, people: Collection[PersonRef]) -> Choice:
    """With which model and mode the turn's agent works for ``people``. A mode that asks less than the configured one
    counts only if each of them may loosen it."""
    chosen = uow.choices.get(main_conversation(turn.conversation))
    if chosen is None:
        return CONFIGURED
    mode: Mode = next((each for each in MODES.values() if each == chosen.mode), "")
    if mode and is_looser(config, turn.agent, mode):
        where = using(config, turn.channel_id, turn.agent)
        if not all(may(admitted(person), "loosen", where).allowed for person in people):
            mode = ""
    return Choice(chosen.model if chosen.model_of == turn.agent else "", mode)


def may_enter(uow: UnitOfWork, running: TurnRow, people: Collection[PersonRef]) -> bool:
    """Whether these people's messages may go into a running turn: not everybody may use the mode that its thread has
    chosen, or had when the run began."""
    chosen = uow.choices.get(main_conversation(running.conversation))
    is_configured = not chosen or (not chosen.mode and chosen.updated_at <= (running.started_at or ""))
    return is_configured or all(person == running.user_id for person in people)


def may_answer(uow: UnitOfWork, config: Config, running: TurnRow, person: PersonRef) -> Decision:
    """Whether ``person``'s answer may go into a running turn: one whose mode asks less than configured takes text only
    from the person it works for, and from people who may loosen it."""
    if may_enter(uow, running, (person,)):
        return ALLOWED
    chosen = uow.choices.get(main_conversation(running.conversation)) or ChoiceRow("")
    mode: Mode = next((each for each in MODES.values() if each == chosen.mode), "")
    # A choice made since says nothing about the mode that the run began with.
    is_its_mode = chosen.updated_at <= (running.started_at or "")
    if is_its_mode and not is_looser(config, running.agent, mode):
        return ALLOWED
    return may(admitted(person), "loosen", using(config, running.channel_id, running.agent))
