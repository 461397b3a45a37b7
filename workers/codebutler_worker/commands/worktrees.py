"""The threads' worktrees (``agent.isolation`` "worktree"): ``!merge``, ``!discard``, and ``!worktrees``. Git finishes
before the answer is committed, so a worker that retries such a command finds it done."""

from __future__ import annotations

import asyncio
from functools import partial

from codebutler.domain.message import DISCARD_ACTION, Button, Message, said
from codebutler.text.markup import message_link, plain
from codebutler.text.wording import count, format_size
from codebutler_worker.commands.showing import age
from codebutler_worker.commands.table import Invocation
from codebutler_worker.conversation.workdir import ask_to_resolve, is_busy, last_of_agents
from codebutler_worker.present.lines import code
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import LIVE, UNFINISHED, Todo, words_of
from codebutler_worker.store.rows import DeferredRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tree.merging import Merged
from codebutler_worker.tree.merging import merge as merge_branch
from codebutler_worker.tree.tree import GitError
from codebutler_worker.tree.worktrees import (
    GONE,
    KEPT_DAYS,
    WorktreeState,
    existing,
    name_of,
    names_in,
    size_kib,
)

WORDS_CHARS = 60
LISTED = 20
NONE = "No thread has a worktree: an agent's first change creates one."
OUTSIDE = "Say it in the thread it is about: `!worktrees` lists them."
MOST_FILES = 5
SIGN_AGAIN = "To sign again: `git rebase -f -S` onto the commit before them."
SHARED = (
    "All threads share the repository's own working tree here, so there are no worktrees. Set `agent.isolation` to "
    "`worktree` in the configuration to give each thread its own branch; here, `!diff` shows the changes "
    "and `!undo` undoes the last run's."
)


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


def merged_text(merged: Merged) -> str:
    """What is new in the branch it was merged into."""
    if not merged.stat:
        return f"{merge_line(merged)}."
    lost = ""
    if merged.unsigned:
        are = "is" if merged.unsigned == 1 else "are"
        lost = f"\n⚠️ {count(merged.unsigned, 'commit')} {are} no longer signed: rebasing changed them. {SIGN_AGAIN}"
    return f"✅ {merge_line(merged)}.{lost}\nContinue in this thread, or `!discard` its worktree."


def merge_line(merged: Merged) -> str:
    """The same in one sentence, without its full stop."""
    if not merged.stat:
        return f"{code(merged.into)} already has everything that is on {code(merged.branch)}"
    return f"Merged {code(merged.branch)} into {code(merged.into)}: {merged.stat}"


def conflict_text(merged: Merged, *, passed_on: bool, again: str = "say `!merge` again") -> str:
    """Why it was not merged, and what happens next."""
    then = (
        f"The agent is resolving them; {again} when it is done."
        if passed_on
        else f"Ask the agent to resolve them, then {again}."
    )
    return (
        f"⚠️ Not merged: {code(merged.branch)} conflicts with {code(merged.into)} in {_paths(merged.conflicts)}. "
        f"Nothing was changed. {then}"
    )


def whether_to_discard(value: str, state: WorktreeState) -> Message:
    """What would be lost, and the button that discards it."""
    text = (
        f"🗑️ Discard the worktree of this thread ({code(state.branch or state.path.name)})?\n"
        f"Not in the repository's branch: {'; '.join(_unsaved(state))}.\n"
        f"A copy is kept in git for {KEPT_DAYS} days, without ignored files and files above 20 MB."
    )
    return said(text, Button("Discard", DISCARD_ACTION, value, "danger"))


def discarded_text(state: WorktreeState, ref: str) -> str:
    """Where the copy is kept."""
    return (
        f"🗑️ Removed the worktree {code(state.branch or state.path.name)}. For {KEPT_DAYS} days "
        f"`git branch NAME {ref}` restores its files and commits."
    )


def listed(state: WorktreeState, thread: str, *, runs: bool, room: str) -> str:
    """One worktree on a line; ``thread`` is Markdown, ``room`` its size."""
    how = "; ".join(_unsaved(state)) or "merged"
    sign = "👀" if runs else "✅" if state.is_saved else "🌿"
    parts = [f"{sign} {code(state.branch or state.path.name)}", thread, how, room]
    return " · ".join(part for part in parts if part)


def _unsaved(state: WorktreeState) -> list[str]:
    parts = []
    if state.changed:
        parts.append(f"{count(len(state.changed), 'file')} not committed ({_paths(state.changed)})")
    if state.unmerged:
        parts.append(f"{count(state.unmerged, 'commit')} not merged")
    if state.unfinished:
        parts.append("an unfinished merge or rebase")
    if state.holds_more:
        parts.append("files sent to or made by the agent, or submodules")
    return parts


def _paths(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - MOST_FILES} more" if len(paths) > MOST_FILES else ""
    return ", ".join(code(path, 60) for path in paths[:MOST_FILES]) + more
