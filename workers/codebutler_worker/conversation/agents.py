"""Which agent a message is for, and with which model and mode it runs: what its thread has chosen, else what is
configured.
"""

from __future__ import annotations

from collections.abc import Collection

from codebutler.config.choices import MODES, Choice, Mode, is_looser
from codebutler.config.permission import ALLOWED, Decision, admitted, may
from codebutler.config.schema import Config
from codebutler.domain.refs import PersonRef
from codebutler_worker.runtime.turns import agent_name, talks, using
from codebutler_worker.store.rows import TurnRow, main_conversation
from codebutler_worker.store.unit_of_work import UnitOfWork


def agent_for(uow: UnitOfWork, config: Config, conversation: str, prefix: str | None) -> str:
    """The agent behind a typed prefix; without one that of the conversation. One that is configured no more is not
    chosen any more."""
    chosen = uow.choices.get(conversation).agent if prefix is None else ""
    if chosen and talks(config, chosen):
        return chosen
    return agent_name(config, prefix)


def choice_for(uow: UnitOfWork, turn: TurnRow, config: Config, people: Collection[PersonRef]) -> Choice:
    """With which model and mode the turn's agent works for ``people``. A mode that asks less than the configured one
    counts only if each of them may loosen it."""
    chosen = uow.choices.get(main_conversation(turn.conversation))
    mode: Mode = next((each for each in MODES.values() if each == chosen.mode), "")
    if mode and is_looser(config, turn.agent, mode):
        where = using(config, turn.channel_id, turn.agent)
        if not all(may(admitted(person), "loosen", where).allowed for person in people):
            mode = ""
    return Choice(chosen.model if chosen.model_of == turn.agent else "", mode)


def may_enter(uow: UnitOfWork, running: TurnRow, people: Collection[PersonRef]) -> bool:
    """Whether what these people say may go into a run under way: a mode that its thread has chosen, or had when the run
    began, may not be everybody's."""
    chosen = uow.choices.get(main_conversation(running.conversation))
    is_configured = not chosen.mode and chosen.updated_at <= (running.started_at or "")
    return is_configured or all(person == running.user_id for person in people)


def may_answer(uow: UnitOfWork, config: Config, running: TurnRow, person: PersonRef) -> Decision:
    """Whether what ``person`` answers may go into a run under way: one that asks less than is configured takes words
    only from the person it works for, and from people who may loosen it."""
    if may_enter(uow, running, (person,)):
        return ALLOWED
    chosen = uow.choices.get(main_conversation(running.conversation))
    mode: Mode = next((each for each in MODES.values() if each == chosen.mode), "")
    # A choice made since says nothing about the mode that the run began with.
    is_its_mode = chosen.updated_at <= (running.started_at or "")
    if is_its_mode and not is_looser(config, running.agent, mode):
        return ALLOWED
    return may(admitted(person), "loosen", using(config, running.channel_id, running.agent))
