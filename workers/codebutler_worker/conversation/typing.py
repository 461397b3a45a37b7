"""What people write in the thread of a session goes to its terminal, and to no agent.

The message is kept with the session's turn until it has been typed: if the worker dies first, it is marked with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from codebutler.config.permission import Decision, admitted, may
from codebutler.config.programs import is_session
from codebutler.config.schema import Config
from codebutler.config.shells import is_shell
from codebutler.protocol.messages import Audit
from codebutler_worker.conversation.marks import WORKING, clear_mark, end_message
from codebutler_worker.conversation.messages import Incoming, keep_message
from codebutler_worker.desk.draft import Draft, place_of
from codebutler_worker.desk.naming import using
from codebutler_worker.desk.states import LIVE
from codebutler_worker.desk.todo import Todo, Typed
from codebutler_worker.present.lines import one_line
from codebutler_worker.store.rows import TurnRow

LATE = "🕰️ You wrote this while I was offline, so it was not typed. Send it again if you still need it."
GONE = "The session has ended: nothing was typed."
WORDS_ONLY = "📎 Files cannot be typed into a session."


def type_in(draft: Draft, config: Config, said: Incoming) -> Todo | None:
    """Take a plain message for the session that runs in its thread; None if none does."""
    if said.prefix is not None or said.thread_ts is None:
        return None
    live = draft.uow.turns.in_states(*LIVE)
    turn = next(
        (each for each in live if each.thread_ts == said.thread_ts and is_session(config, each.agent)), None
    )
    if turn is None:
        return None
    place = place_of(turn)
    # The parent has let it in as a prompt for the default agent.
    text = _commands(config, turn.agent, said.text)
    decision = may(admitted(said.user), "type", using(config, said.channel, turn.agent, text))
    refused = decision.told
    if decision.allowed and said.late:
        refused = LATE
    elif decision.allowed and not said.text.strip():
        refused = WORDS_ONLY
    if refused:
        keep_message(draft, said, None)
        draft.post(place, refused)
        end_message(draft, place, said.ts, "refused")
        return Todo(audit=() if decision.allowed else (_refusal(said, turn, decision),))
    keep_message(draft, said, turn.id)
    return Todo(typed=(Typed(turn.id, said.channel, said.ts, said.text),))


def _refusal(said: Incoming, turn: TurnRow, decision: Decision) -> Audit:
    """The parent let it in as a prompt, and wrote that down."""
    text = one_line(said.text, 1000)
    return Audit(
        user=said.user,
        thread=turn.thread_ts,
        kind=turn.agent,
        text=text,
        decision=f"refused: {decision.reason}",
    )


def _commands(config: Config, agent: str, text: str) -> str:
    """What of it a shell would run: a key is none."""
    if not is_shell(config, agent):
        return ""
    # Not for every worker's memory: only one with a session needs to know the keys.
    from codebutler_worker.agents.shell.run import is_key

    return "" if is_key(text) else text


@dataclass(frozen=True, slots=True)
class TypedOutcome:
    """What became of a typed message; ``refusal`` is "" if it was typed."""

    typed: Typed
    refusal: str


def settle(draft: Draft, outcome: TypedOutcome) -> None:
    """Mark a message as typed, or say why it was not."""
    typed = outcome.typed
    turn = draft.uow.turns.get(typed.turn_id)
    message = draft.uow.messages.get(typed.channel, typed.ts)
    if turn is None or message is None or message.turn_id != turn.id:
        return
    draft.uow.messages.detach(typed.channel, typed.ts)
    place = place_of(turn)
    if outcome.refusal:
        draft.post(place, outcome.refusal)
    end_message(draft, place, typed.ts, "refused" if outcome.refusal else "done")
    # While it was with the turn it got the turn's own mark, if that was set just then.
    clear_mark(draft, place, message, WORKING)
