"""An edit of a message whose run has begun: what was answered stands, and the edited text can be asked anew, once.

The row keeps the edited text, so the button works after a restart, too; a press moves the message into a new turn.
"""

from __future__ import annotations

from codebutler.config.permission import admitted, may
from codebutler.config.schema import Config
from codebutler.domain.message import Message
from codebutler.domain.model import ButtonClicked, MessageEdited, Post, Prompt, Request
from codebutler_worker.conversation.marks import WORKING, clear_end, clear_mark
from codebutler_worker.conversation.messages import BUSY, Incoming, take_in
from codebutler_worker.desk.draft import Draft, place_of
from codebutler_worker.desk.naming import agent_name, using
from codebutler_worker.desk.no_effect import no_effect
from codebutler_worker.desk.states import LIVE
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import one_line
from codebutler_worker.present.notices import AGAIN, COMMAND, edited
from codebutler_worker.store.rows import MessageRow, TurnRow

ONCE = (
    "You have asked again already: its answer is in this thread. To ask once more, edit your message again."
)


def edited_late(draft: Draft, event: MessageEdited, request: Request, message: MessageRow) -> Todo:
    """Say what becomes of the edit of a message that is in a turn which has begun."""
    turn = draft.uow.turns.get(message.turn_id or "")
    if turn is None:
        return Todo()
    if not isinstance(request, Prompt):
        draft.post(place_of(turn), COMMAND)
        return Todo()
    if not request.text.strip() or (request.text, request.prefix) == (message.content, message.agent):
        return Todo()
    draft.uow.messages.set_text(event.channel, event.ts, request.text)
    draft.uow.messages.set_agent(event.channel, event.ts, request.prefix)
    offer = f"{turn.id}-again-{event.ts}"
    if draft.uow.outbox.get(offer) is None:
        card = edited(turn.state, f"{turn.id}:{event.ts}")
        post = Post(message=card, thread_ts=turn.thread_ts or None)
        draft.add(place_of(turn), post, op_id=offer)
    return Todo().logged("MSG", f'{event.user} edited: "{one_line(event.text)}"')


def ask_again(draft: Draft, config: Config, event: ButtonClicked) -> Todo:
    """Start the new run, as if whoever pressed had said the edited text: by the same rules, on their account."""
    turn_id, _, ts = event.value.partition(":")
    turn, message = draft.uow.turns.get(turn_id), draft.uow.messages.get(event.channel, ts)
    if turn is None or message is None or turn.channel_id != event.channel:
        return no_effect(draft, event)
    if message.turn_id != turn.id:
        return no_effect(draft, event, ONCE)
    agent = agent_name(config, message.agent)
    decision = may(admitted(event.user), "ask", using(config, event.channel, agent, message.content))
    if not decision.allowed:
        draft.post(place_of(turn), decision.told)
        return Todo().logged("WRN", f"{event.user} may not ask {message.id} again: {decision.reason}")
    if turn.state in LIVE and config.agent.busy == "reject":
        draft.post(place_of(turn), BUSY)
        return Todo()
    return _asked(draft, config, event, turn, message)


def _asked(draft: Draft, config: Config, event: ButtonClicked, turn: TurnRow, message: MessageRow) -> Todo:
    ts = message.platform_msg_id
    said = Incoming(
        channel=event.channel,
        ts=ts,
        order=message.order,
        thread_ts=None if message.thread_ts == ts else message.thread_ts,
        user=event.user,
        text=message.content,
        prefix=message.agent,
    )
    draft.uow.messages.renew(event.channel, ts)
    todo = take_in(draft, config, said)
    draft.edit_ts(place_of(turn), event.message_ts, Message(markdown=AGAIN))
    clear_mark(draft, place_of(turn), message, WORKING)
    clear_end(draft, place_of(turn), message, turn.state)
    return todo
