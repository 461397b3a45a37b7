"""``!undo``: show what the last turn's changes are, and put them back when somebody says so."""

from __future__ import annotations

from codebutler.domain.message import said
from codebutler.text.markup import plain
from codebutler_worker.commands.asked import Asked
from codebutler_worker.commands.describe import age, words_of
from codebutler_worker.conversation.turn.undo import changed_by, undo_key
from codebutler_worker.desk.deferred import Reply
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft
from codebutler_worker.desk.states import LIVE
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.undo import ALREADY, BUSY, NO_SNAPSHOT, NOTHING_CHANGED, preview
from codebutler_worker.store.rows import DeferredRow, TurnRow

WORDS_CHARS = 60


def run(asked: Asked) -> Todo:
    """Look at what would be put back; git has to be asked."""
    if asked.turns(*LIVE):
        return asked.reply(BUSY)
    turn = changed_by(asked.newest)
    if turn is None:
        return asked.reply(NO_SNAPSHOT)
    if asked.draft.uow.messages.get(turn.channel_id, undo_key(turn.id)) is not None:
        return asked.reply(ALREADY)
    return asked.defer(turn.id)


async def answer(desk: Desk, command: DeferredRow) -> Reply:
    """A card that says what would be put back, with a button that does it."""
    turn, words, when = await desk.commit(lambda draft: _described(draft, command.argument))
    if turn is None or turn.tree_before is None:
        return Reply((said(NO_SNAPSHOT),))
    tree = await desk.agents.tree(await desk.agents.workdir(turn.conversation))
    found = await tree.put_back(turn.tree_before, turn.tree_after, "check")
    if not found.undone and not found.left:
        return Reply((said(NOTHING_CHANGED.format(words=words, when=when)),))
    return Reply((preview(turn.id, f"{words}, {when}", found),))


def _described(draft: Draft, turn_id: str) -> tuple[TurnRow | None, str, str]:
    turn = draft.uow.turns.get(turn_id)
    if turn is None:
        return None, "", ""
    return turn, f"“{plain(words_of(draft, turn, WORDS_CHARS))}”", age(draft, turn)
