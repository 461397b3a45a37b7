"""The buttons of a card about changes: each is a command about the run it names, in the thread of its card, for the
person who presses it. The parent, which accepted the click, does not know the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from codebutler.config.permission import Action, admitted, may, push_place
from codebutler.config.schema import RepoSettings
from codebutler.domain.commands import WORDS
from codebutler.domain.message import (
    ASK_UNDO_ACTION,
    CHECKS_ACTION,
    COMMIT_ACTION,
    DIFF_ACTION,
    DIFF_FILE_ACTION,
    DISCARD_RACE_ACTION,
    FIX_ACTION,
    HAND_OVER_ACTION,
    PICK_RACE_ACTION,
    PR_ACTION,
    PUSH_ACTION,
    said,
)
from codebutler.domain.model import ButtonClicked, Command
from codebutler.domain.refs import MessageRef
from codebutler_worker.changes.card import TRIED_AGAIN, WAITING, fix_prompt, running_line, with_verdict
from codebutler_worker.changes.checking import checks_of, repair_key
from codebutler_worker.changes.pending import (
    ALL,
    add_checks,
    card_id,
    evidence_id,
    is_at_rest,
    posted_as,
    posted_card,
)
from codebutler_worker.commands.picking import pick
from codebutler_worker.commands.table import Invocation, handler_of
from codebutler_worker.conversation.deciding import already_decided, no_effect
from codebutler_worker.forge.following import news_operation_id
from codebutler_worker.present.lines import person
from codebutler_worker.runtime.turns import CHECKS, Todo, conversation_id, queue_after, talks, using
from codebutler_worker.store.rows import TurnRow, message_id
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of

COMMANDS: Mapping[str, tuple[str, str]] = {
    DIFF_ACTION: ("diff", "run"),
    DIFF_FILE_ACTION: ("diff", ""),
    ASK_UNDO_ACTION: ("undo", ""),
    COMMIT_ACTION: ("commit", ""),
    PUSH_ACTION: ("push", ""),
    PR_ACTION: ("pr", ""),
}
"""The command and its argument; a button about one file adds its own."""
REQUIRED_ACTIONS: Mapping[str, Action] = {
    DIFF_ACTION: "command",
    DIFF_FILE_ACTION: "command",
    ASK_UNDO_ACTION: "undo",
    COMMIT_ACTION: "commit",
    PUSH_ACTION: "push",
    PR_ACTION: "push",
    CHECKS_ACTION: "ask",
    FIX_ACTION: "continue",
    HAND_OVER_ACTION: "continue",
    PICK_RACE_ACTION: "merge",
    DISCARD_RACE_ACTION: "merge",
}
BUTTONS = frozenset(REQUIRED_ACTIONS)
SEARCHED_TURNS = 20
HANDED_OVER = "▶ {who} handed this to the agent."


def press(uow: UnitOfWork, settings: RepoSettings, event: ButtonClicked) -> Todo:
    """Do what the button says, if the person who pressed it is allowed to."""
    if event.action_id == HAND_OVER_ACTION:
        return _hand_over(uow, settings, event)
    name, argument = COMMANDS.get(event.action_id, ("", ""))
    word, of_file = WORDS.get(name), event.action_id == DIFF_FILE_ACTION
    turn = None if of_file else uow.turns.get(event.value)
    if (name and word is None) or (not of_file and (turn is None or turn.channel_id != event.channel)):
        return no_effect(uow, event)
    root, config = event.thread or event.message, settings.config
    conversation = turn.conversation if turn else conversation_id(config, event.channel, root)
    place = ThreadPlace(conversation, root)
    agent = turn.agent if turn and event.action_id != CHECKS_ACTION else CHECKS
    action = REQUIRED_ACTIONS[event.action_id]
    where = push_place(config, event.channel) if action == "push" else using(config, event.channel, agent)
    decision = may(admitted(event.user), action, where)
    if not decision.allowed:
        uow.post(place, decision.message, value="notice")
        return Todo().logged("WRN", f"{event.user} may not press {event.action_id}: {decision.reason}")
    if turn is not None and word is None:
        return _RUN_HANDLERS[event.action_id](uow, settings, turn, event)
    handler = handler_of(word) if word else None
    if handler is None:
        return no_effect(uow, event)
    command = Command(name=name, argument=event.value if of_file else argument)
    run = turn.id if turn else ""
    invocation = Invocation(uow, settings, command, place, conversation, event.user, run=run)
    return handler(invocation).logged("MSG", f"{event.user} pressed !{name}")


def _run_checks(uow: UnitOfWork, settings: RepoSettings, turn: TurnRow, event: ButtonClicked) -> Todo:
    """Run the checks for the card, and say so on it."""
    config, posted = settings.config, posted_card(uow, turn.id)
    if posted is None or uow.deferred.get(evidence_id(turn.id)) is not None:
        return no_effect(uow, event)
    checks = [check for check in checks_of(config.checks, Path(settings.path)) if check.when != "never"]
    if not checks:
        return no_effect(uow, event)
    line = running_line(checks) if is_at_rest(uow, config, turn.conversation) else WAITING
    card = with_verdict(posted, line, turn.id, offer=False)
    uow.edit(place_of(turn), card_id(turn.id), card, value="notice")
    add_checks(uow, turn, event.user, ALL)
    return Todo()


def _start_fix(uow: UnitOfWork, settings: RepoSettings, turn: TurnRow, event: ButtonClicked) -> Todo:
    """Start a run that fixes what the checks found, once per question."""
    key = repair_key(turn.id)
    if uow.messages.get(message_id(turn.channel_id, key)) is not None:
        return already_decided(uow, event)
    prompt = fix_prompt(checks_of(settings.config.checks, Path(settings.path)))
    queue_after(uow, turn, turn.agent, key, prompt, event.user)
    uow.edit_ref(place_of(turn), event.message, said(TRIED_AGAIN))
    return Todo(begins=turn.thread)


_RUN_HANDLERS: Mapping[str, Callable[[UnitOfWork, RepoSettings, TurnRow, ButtonClicked], Todo]] = {
    CHECKS_ACTION: _run_checks,
    FIX_ACTION: _start_fix,
    PICK_RACE_ACTION: pick,
    DISCARD_RACE_ACTION: pick,
}


def _hand_over(uow: UnitOfWork, settings: RepoSettings, event: ButtonClicked) -> Todo:
    """Start a run of the thread's agent about news of a pull request, once."""
    news, config = uow.pull_news.get(event.value), settings.config
    pull = uow.pulls.get(news.pull_id) if news else None
    if news is None or pull is None:
        return no_effect(uow, event)
    thread = pull.thread or event.message
    conversation = pull.conversation if pull.thread else conversation_id(config, event.channel, thread)
    earlier = (
        turn.agent
        for turn in uow.turns.find(newest=SEARCHED_TURNS, conversation=conversation)
        if talks(config, turn.agent)
    )
    agent = next(earlier, config.agent.default)
    place, action = ThreadPlace(conversation, thread), REQUIRED_ACTIONS[event.action_id]
    decision = may(admitted(event.user), action, using(config, event.channel, agent))
    if not decision.allowed:
        uow.post(place, decision.message, value="notice")
        return Todo().logged("WRN", f"{event.user} may not hand over news of {pull.id}: {decision.reason}")
    key = MessageRef(f"hand-over-{news.id}")
    if uow.messages.get(message_id(event.channel, key)) is not None:
        return already_decided(uow, event)
    task = TurnRow(
        id="",
        conversation=conversation,
        channel_id=event.channel,
        thread=thread,
        agent=agent,
        created_at=uow.stamp,
    )
    queue_after(uow, task, agent, key, news.task, event.user)
    posted = posted_as(uow, news_operation_id(news.id))
    line = HANDED_OVER.format(who=person(event.user))
    uow.edit_ref(place, event.message, said(f"{posted.markdown}\n{line}" if posted else line))
    return Todo(begins=thread).logged("MSG", f"{event.user} handed over news of {pull.id}")
