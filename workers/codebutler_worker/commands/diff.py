"""``!diff``: what has changed in the working tree, or in the last run."""

from __future__ import annotations

from codebutler.domain.message import said
from codebutler_worker.commands.asked import Asked
from codebutler_worker.conversation.turn.undo import changed_by
from codebutler_worker.desk.deferred import Attachment, Reply
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import FENCE_CHARS, count, fenced
from codebutler_worker.store.rows import DeferredRow
from codebutler_worker.tree.tree import Difference

MAX_BYTES = 4 * 2**20
STAT_CHARS = 1500
UNCHANGED = "Nothing has changed since the last commit."
NO_RUN = "No run here has left a snapshot, so there is nothing to compare."
RUN_UNCHANGED = "The last run here has changed no files."
BY_MESSAGE = "Say `!diff` in the channel to get it as a file."


def run(asked: Asked) -> Todo:
    """Git has to be asked."""
    if not asked.argument:
        return asked.defer()
    turn = changed_by(asked.newest)
    if turn is None:
        return asked.reply(NO_RUN)
    return asked.defer(f"{turn.tree_before} {turn.tree_after or ''}".strip())


async def answer(desk: Desk, command: DeferredRow) -> Reply:
    """A summary and, if it is short, the difference itself; otherwise it is attached."""
    before, _, after = command.argument.partition(" ")
    tree = await desk.agents.tree(await desk.agents.workdir(command.conversation))
    if before and not after:
        now = await tree.snapshot("now")
        after = now.commit if now else ""
    found = await tree.difference(before or None, after or None, limit_bytes=MAX_BYTES)
    if not found.stat.strip():
        return Reply((said(RUN_UNCHANGED if before else UNCHANGED),))
    limit = desk.settings.config.output.max_chars_per_message
    return shown(found, limit, whispered=bool(command.only_for))


def shown(found: Difference, limit: int, *, whispered: bool) -> Reply:
    """Pure: how a difference is said within ``limit`` characters. A file cannot be for one user alone."""
    *_, summary = found.stat.strip().splitlines()
    stat, _ = fenced(found.stat, STAT_CHARS)
    body, hidden = fenced(found.body, min(limit, FENCE_CHARS) - 200)
    if not hidden and not found.cut:
        return Reply((said(f"{summary.strip()}\n{body}"),))
    if whispered:
        return Reply((said(f"{stat}\n{BY_MESSAGE}"),))
    cut = f"\n_The file holds the first {count(MAX_BYTES // 2**20, 'MB')} only._" if found.cut else ""
    file = Attachment("changes.diff", found.body.encode("utf-8", "replace"), "Changes")
    return Reply((said(f"{stat}{cut}"),), (file,))
