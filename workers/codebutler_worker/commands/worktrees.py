"""The threads' worktrees (``agent.isolation`` "worktree"): ``!merge``, ``!discard``, and ``!worktrees``. Git finishes
before the answer is committed, so a worker that retries such a command finds it done."""

from __future__ import annotations

import asyncio
from functools import partial

from codebutler.domain.message import said
from codebutler.text.markup import message_link, plain
from codebutler.text.wording import count
from codebutler_worker.commands.showing import age
from codebutler_worker.commands.table import Invocation
from codebutler_worker.conversation.workdir import ask_to_resolve, is_busy, last_of_agents
from codebutler_worker.media.files import format_size
from codebutler_worker.present.lines import (
    SHARED,
    code,
    conflict_text,
    discarded_text,
    listed,
    merged_text,
    whether_to_discard,
)
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import LIVE, UNFINISHED, Todo, words_of
from codebutler_worker.store.rows import DeferredRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tree.merging import merge as merge_branch
from codebutler_worker.tree.tree import GitError
from codebutler_worker.tree.worktrees import GONE, WorktreeState, existing, name_of, names_in, size_kib

WORDS_CHARS = 60
LISTED = 20
NONE = "No thread has a worktree: an agent's first change creates one."
OUTSIDE = "Say it in the thread it is about: `!worktrees` lists them."


def merge(invocation: Invocation) -> Todo:
    """Deferred: git has to be asked."""
    return _defer_in_thread(invocation)


def discard(invocation: Invocation) -> Todo:
    """Deferred: git has to say what would be lost."""
    return _defer_in_thread(invocation)


def run(invocation: Invocation) -> Todo:
    """Deferred: git has to be asked about each."""
    return invocation.reply(SHARED) if _is_shared(invocation) else invocation.defer()


def _defer_in_thread(invocation: Invocation) -> Todo:
    if _is_shared(invocation):
        return invocation.reply(SHARED)
    if invocation.conversation is None:
        return invocation.reply(OUTSIDE)
    return invocation.defer(invocation.argument)


def _is_shared(invocation: Invocation) -> bool:
    return invocation.settings.config.agent.isolation == "shared"


async def answer_merge(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Merge what is new; conflicts become the agent's next task."""
    conversation = command.conversation
    trees = await runtime.agents.worktrees()
    busy = partial(is_busy, runtime, conversation, LIVE)
    merged = await merge_branch(trees, conversation, command.argument, busy)
    if not merged.conflicts:
        return CommandReply((said(merged_text(merged)),))
    passed_on = await runtime.commit(
        partial(ask_to_resolve, settings=runtime.settings, command=command, merged=merged)
    )
    return CommandReply((said(conflict_text(merged, passed_on=passed_on)),), ok=False)


async def answer_discard(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Remove a worktree that has nothing to lose, or whose loss is confirmed (``argument``); otherwise ask."""
    conversation, trees = command.conversation, await runtime.agents.worktrees()
    config = runtime.settings.config
    turn, now = await runtime.commit(lambda uow: (last_of_agents(uow, config, conversation), uow.now))
    if turn is None:
        raise GitError(GONE)
    state = await trees.state(conversation, await trees.target())
    if not command.argument and not state.is_saved:
        fingerprint = await trees.fingerprint(state)
        return CommandReply((whether_to_discard(f"{turn.id}:{fingerprint}", state),))
    busy = partial(is_busy, runtime, conversation, LIVE)
    ref = await trees.discard(conversation, busy, now, command.argument)
    return CommandReply((said(discarded_text(state, ref)),))


async def answer(runtime: Runtime, _command: DeferredRow) -> CommandReply:
    """One line for each, latest threads first."""
    trees = await runtime.agents.worktrees()
    names = await asyncio.to_thread(names_in, trees.repo)
    conversations = await runtime.commit(partial(_conversations_of, names=names))
    if not conversations:
        return CommandReply((said(NONE),))
    target = await trees.target()
    lines = []
    for conversation, thread, runs in conversations[:LISTED]:
        try:
            state = await trees.state(conversation, target)
            room = await _size_on_disk(runtime, conversation, state)
            lines.append(listed(state, thread, runs=runs, room=room))
        except GitError as error:
            lines.append(f"⚠️ {thread} · {plain(str(error))}")
    more = [f"… and {len(conversations) - LISTED} more"] if len(conversations) > LISTED else []
    head = f"{count(len(conversations), 'worktree')}, compared with {code(target.branch)}:"
    return CommandReply((said("\n".join([head, *lines, *more])),))


async def _size_on_disk(runtime: Runtime, conversation: str, state: WorktreeState) -> str:
    trees = await runtime.agents.worktrees()
    if existing(trees.repo, conversation) is None:
        return ""
    kib = await size_kib(trees.git(state.path))
    return "" if kib is None else format_size(kib * 1024)


def _conversations_of(uow: UnitOfWork, names: frozenset[str]) -> list[tuple[str, str, bool]]:
    """Each conversation with a worktree: a link to its thread with its age, and whether something is running in
    it."""
    unfinished = {turn.conversation for turn in uow.turns.find(state=UNFINISHED)}
    conversations = []
    for turn in uow.turns.newest_of_each():
        if name_of(turn.conversation) in names:
            words = plain(words_of(uow, turn, WORDS_CHARS)) or "…"
            thread = message_link(turn.channel_id, turn.thread, words) if turn.thread else words
            conversations.append(
                (turn.conversation, f"{thread} · {age(uow, turn)}", turn.conversation in unfinished)
            )
    return conversations
