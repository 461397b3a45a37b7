"""A button about something that is not known here (any more): whoever pressed it is told so, and nothing happens."""

from __future__ import annotations

import msgspec

from codebutler.domain.model import ButtonClicked, Post
from codebutler_worker.desk.draft import Draft, Place
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import one_line
from codebutler_worker.store.rows import OutboxRow

NO_EFFECT = (
    "That choice does nothing any more: what it was about is not known here. `!list` shows what is; "
    "or write what you want."
)
ALREADY_DECIDED = (
    "That is decided already, and nothing more comes of it. `!continue` here goes on with what can go on."
)


def already_decided(draft: Draft, event: ButtonClicked) -> Todo:
    """The same for a button whose turn has gone on, or has been dropped, since."""
    return no_effect(draft, event, ALREADY_DECIDED)


def no_effect(draft: Draft, event: ButtonClicked, text: str = NO_EFFECT) -> Todo:
    """Told to that person alone, and not again while it is still on its way."""
    root = event.thread_ts or event.message_ts
    conversation = f"{event.channel}:{root}"
    waiting = (row for row in draft.uow.outbox.pending() if row.conversation == conversation)
    if not any(row.kind == "post" and _says(row, text) for row in waiting):
        draft.post(Place(conversation, root, only_for=event.user), text)
    return Todo().logged("DBG", f"nothing to do for a click on {one_line(event.action_id, 60)}")


def _says(row: OutboxRow, text: str) -> bool:
    return msgspec.json.decode(row.payload, type=Post).message.markdown == text
