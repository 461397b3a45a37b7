"""A conversation's worktree after its run: removed if unchanged, else announced in its thread. A merge that
conflicts becomes a turn, and worktrees that were merged long ago are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from codebutler.config.permission import admitted, may
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import MessageRef
from codebutler.text.markup import message_link, plain
from codebutler_worker.changes.race import is_racing
from codebutler_worker.changes.undo import changed_by
from codebutler_worker.present.notices import also_changed, own_worktree
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import UNFINISHED, follow_up, give_task, talks, using, words_of
from codebutler_worker.store.rows import DeferredRow, TurnRow, TurnState, message_id
from codebutler_worker.store.unit_of_work import UnitOfWork, iso, place_of
from codebutler_worker.tree.merging import Merged, shared_paths
from codebutler_worker.tree.worktrees import Worktrees, name_of, names_in

LOOKED_AT = 50
WORDS_CHARS = 60


async def tidy_workdir(runtime: Runtime, turn: TurnRow) -> None:
    """Remove the turn's own worktree if it has no changes; announce one that stays, once. Nothing may run in it."""
    try:
        trees = await runtime.agents.worktrees()
        branch = await trees.tidy(turn.conversation)
        if branch and not await runtime.commit(lambda uow: is_racing(uow, turn.conversation)):
            await runtime.commit(lambda uow: _tell_branch(uow, turn, branch))
            await _tell_shared_files(runtime, trees, turn)
    except CodeButlerError as error:
        runtime.log("WRN", f"after run {turn.id}: {error}")


def _tell_branch(uow: UnitOfWork, turn: TurnRow, branch: str) -> None:
    op_id = sha256(f"{turn.conversation} {branch}".encode()).hexdigest()
    if uow.outbox.get(op_id) is None:
        uow.post(place_of(turn), own_worktree(branch), op_id=op_id)


async def _tell_shared_files(runtime: Runtime, trees: Worktrees, turn: TurnRow) -> None:
    """Warn about files that another thread's worktree has changed as well. Raises CodeButlerError."""
    names = await asyncio.to_thread(names_in, trees.repo) - {name_of(turn.conversation)}
    commit, others = await runtime.commit(lambda uow: _snapshots(uow, turn, names)) if names else ("", [])
    if not commit or not others:
        return
    theirs = [last for _, last in others]
    shared = await shared_paths(trees.git(trees.repo), commit, theirs)
    found = [(other, paths) for (other, _), paths in zip(others, shared, strict=True) if paths]
    if found:
        await runtime.commit(lambda uow: _tell_others(uow, turn, found))


def _snapshots(
    uow: UnitOfWork, turn: TurnRow, names: frozenset[str]
) -> tuple[str, list[tuple[TurnRow, str]]]:
    """The turn's snapshot, if it changed anything; and those of the other conversations' worktrees."""
    ended = uow.turns.get(turn.id)
    if ended is None or not ended.tree_after or ended.tree_after == ended.tree_before:
        return "", []
    others = []
    for newest in uow.turns.newest_of_each():
        if name_of(newest.conversation) in names:
            last = changed_by(uow.turns.find(newest=LOOKED_AT, conversation=newest.conversation))
            others += [(last, last.tree_after)] if last is not None and last.tree_after else []
    return ended.tree_after, others


def _tell_others(uow: UnitOfWork, turn: TurnRow, found: Sequence[tuple[TurnRow, tuple[str, ...]]]) -> None:
    """Once for the same thread and the same files."""
    key = "\n".join(f"{other.conversation} {paths}" for other, paths in found)
    op_id = sha256(f"{turn.conversation} {key}".encode()).hexdigest()
    if uow.outbox.get(op_id) is None:
        threads = [
            (
                message_link(other.channel_id, other.thread, plain(words_of(uow, other, WORDS_CHARS)) or "…"),
                paths,
            )
            for other, paths in found
        ]
        uow.post(place_of(turn), also_changed(threads), op_id=op_id, value="notice")


async def is_busy(runtime: Runtime, conversation: str, states: Sequence[TurnState]) -> bool:
    """Whether a turn of the conversation is in one of these states. Raises StoreError."""
    return await runtime.commit(
        lambda uow: any(turn.conversation == conversation for turn in uow.turns.find(state=states))
    )


def ask_to_resolve(uow: UnitOfWork, settings: RepoSettings, command: DeferredRow, merged: Merged) -> bool:
    """Queue a turn in which the conversation's agent resolves the conflicts, once per command, on the account
    of the person who gave it; False if they may not use that agent."""
    conversation, config = command.conversation, settings.config
    last = last_of_agents(uow, config, conversation)
    if last is None:
        return False
    text, key = conflict_task(merged), MessageRef(f"merge-{command.id}")
    if not may(admitted(command.user_id), "ask", using(config, last.channel_id, last.agent, text)).allowed:
        return False
    if uow.messages.get(message_id(last.channel_id, key)) is None:
        about = replace(last, thread=command.thread or last.thread, job="")
        give_task(uow, follow_up(uow, about, last.agent, command.user_id), key, text)
    return True


def last_of_agents(uow: UnitOfWork, config: Config, conversation: str) -> TurnRow | None:
    """The conversation's newest turn of an agent: the rules for that agent say who may decide about its work."""
    newest = uow.turns.find(newest=LOOKED_AT, conversation=conversation)
    return next((turn for turn in newest if talks(config, turn.agent)), None)


async def remove_merged(runtime: Runtime, now: datetime) -> None:
    """Remove fully merged worktrees of conversations without activity for ``agent.worktreeDays``; delete old
    copies of discarded ones."""
    agent = runtime.settings.config.agent
    repo = Path(runtime.settings.path)
    if agent.isolation == "shared" or not (names := await asyncio.to_thread(names_in, repo)):
        return
    try:
        trees = await runtime.agents.worktrees()
        await trees.expire(now)
        target = await trees.target()
    except CodeButlerError as error:
        runtime.log("WRN", f"cannot remove old worktrees: {error}")
        return
    before = iso(now - timedelta(days=agent.worktree_days))
    for turn in await runtime.commit(lambda uow: uow.turns.newest_of_each()) if agent.worktree_days else ():
        conversation = turn.conversation
        if name_of(conversation) not in names or (turn.finished_at or turn.created_at) > before:
            continue
        try:
            if (await trees.state(conversation, target)).is_saved:
                ref = await trees.discard(
                    conversation, partial(is_busy, runtime, conversation, UNFINISHED), now
                )
                runtime.log("INF", f"removed the merged worktree {name_of(conversation)}; kept as {ref}")
        except CodeButlerError as error:
            runtime.log("WRN", f"kept the worktree {name_of(conversation)}: {error}")


def conflict_task(merged: Merged) -> str:
    """The task for its agent."""
    paths = "\n".join(f"- {path}" for path in merged.conflicts)
    return (
        f"Your branch {merged.branch} could not be merged into {merged.into}, because both changed these files:\n"
        f"{paths}\n\n"
        f"Nothing was merged. Merge {merged.into} into your branch here (git merge {merged.into}), resolve the "
        "conflicts so that the intention of both sides is kept, run the checks if there are any, and commit. "
        f"Do not change {merged.into} itself."
    )
