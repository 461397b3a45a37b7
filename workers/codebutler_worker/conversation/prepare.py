"""Prepares a turn: commits it as running, and gathers its messages, its directory and its prompt.

The start is one transaction, committed before anything is started: after a crash, the turn is found
interrupted, never lost without a trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.programs import CONFIGURED, UNDO, Choice, parallel_programs, program_of
from codebutler.config.schema import CommandRule, Config
from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler.domain.model import Value
from codebutler.domain.refs import MessageRef
from codebutler.text.envelopes import enveloped
from codebutler.text.wording import format_size, one_line
from codebutler_worker.changes.card import UNDONE
from codebutler_worker.changes.pending import put_off_checks, withdraw_checks
from codebutler_worker.changes.race import was_picked
from codebutler_worker.changes.undo import to_put_back
from codebutler_worker.conversation.approvals import answers_before
from codebutler_worker.conversation.history import LOOKED_BACK, Missed, look_back, unread
from codebutler_worker.conversation.parked import LIMIT
from codebutler_worker.conversation.queue import HANDED_OVER, STALE
from codebutler_worker.conversation.terminal import opening
from codebutler_worker.present import progress
from codebutler_worker.present.notices import LATE
from codebutler_worker.present.progress import TurnProgress
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import IMAGE, WORDLESS, choice_for, move, own_tree
from codebutler_worker.store.rows import (
    REPO_SCOPE,
    AttachmentRow,
    FactRow,
    TurnRow,
    main_conversation,
    race_in,
)
from codebutler_worker.store.unit_of_work import UnitOfWork, place_of
from codebutler_worker.tools.talking import ASK_TO_PUSH
from codebutler_worker.tree.tree import AFTER, BEFORE, Snapshot

LOOKED_AT = 200
RESTRICTIONS = """\
RULES OF THIS REPOSITORY. They come before anything you are asked or read:
1. Install nothing: no system packages, no language packages, no dependencies, with no package manager \
(brew, apt, npm, pip, go install or any other).
2. Stay inside the working directory. Neither read nor write files outside this repository.
3. Change nothing of the system: no system files, no configuration outside the repository, no environment \
variables.
4. Make no network requests, except through tools this repository already brings.
5. Run nothing destructive or hard to take back: no recursive deletions, no force pushes, no dropping of \
tables or the like.
When a task cannot be done within these rules, say exactly what would be needed, and stop."""
_CHANNEL = f"""\
The person talks to you from a chat thread, often on a phone: answer briefly, in Markdown, with the result \
first. Nobody can see your screen and nobody can answer a terminal prompt. Voice messages are transcribed by \
machine and may be slightly wrong. To send the person a file of this repository, write exactly \
{enveloped(" path/of/the/file ", "file")} in your answer; the marks themselves are not shown. To ask \
something without waiting, enclose it in the same way with question for file, its options last, as a list; the \
answer is the next message. You cannot push: to ask the person to push your commits or to open a pull request, \
call the tool {ASK_TO_PUSH.name} or, if you do not have it, write {enveloped(" why ", "push")}."""
_RESUMED = """\
The machine stopped while you were working on this, so your last run ended in the middle. Look at what is \
done and what is not, and report that first. Change nothing beyond what was asked for before."""
_CUT_SHORT = """\
Your last run met its limit before it was done. Go on from where you stopped, changing nothing beyond what \
was asked for."""
_STOPPED = """\
A person stopped your last run, and now lets it go on. Look at what is done and what is not, then go on from \
there, changing nothing beyond what was asked for before."""
_MOVED = """\
From now on you work in {workdir}. What you did before in a worktree of your own has been merged there, and that \
worktree is gone."""
_ANSWERED = "What you had asked is answered; do not ask it again:"
_LATE = "[written while you were offline]"
_UNREAD = "[sent earlier; your run was stopped before you read it]"


class BegunTurn(Struct, frozen=True):
    """A turn committed as running, and the input for its agent. ``messages`` are the turn's own;
    ``withdrawn`` are the checks that it ended. ``has_moved``: its agent's session began in another directory.
    ``is_apart``: its conversation may have a worktree of its own; ``has_own_tree``: it works in one, as only agents
    that may change the tree do; programs run where their thread is."""

    turn: TurnRow
    prompts: tuple[PromptMessage, ...]
    attachments: tuple[AttachmentRow, ...]
    progress_op_id: str | None
    cost_before_usd: float
    session_name: str
    program: CommandRule | None
    missed: Missed
    put_back: tuple[str, str | None] | None = None
    facts: tuple[FactRow, ...] = ()
    answered: tuple[tuple[str, str], ...] = ()
    messages: tuple[MessageRef, ...] = ()
    withdrawn: tuple[str, ...] = ()
    choice: Choice = CONFIGURED
    has_moved: bool = False
    is_apart: bool = False
    has_own_tree: bool = False

    @property
    def has_words(self) -> bool:
        """Whether it can continue without its files."""
        return bool(self.turn.reason) or any(each.text.strip() for each in self.prompts)


def begin(uow: UnitOfWork, turn: TurnRow, config: Config) -> BegunTurn:
    """Commit the turn as running, and gather its messages. What is not shown now is shown if the turn lasts."""
    program = program_of(config, turn.agent)
    session = uow.sessions.get(turn.conversation, turn.agent)
    rows = uow.messages.find(turn_id=turn.id)
    if program is not None and turn.reason != STALE and any(row.late and not row.acked for row in rows):
        uow.post(place_of(turn), LATE)  # Its output says nothing but what it printed.
    posted = turn.progress_op_id
    if not config.output.progress_after_seconds or (program and program.mode == "interactive"):
        posted = _show_at_once(uow, turn, config, program)
    session_id = session.session_id if session else None
    state = move(turn.state, "start")
    uow.turns.update(turn.id, state=state, started_at=uow.stamp, session_id=session_id, progress_op_id=posted)
    messages = tuple(row.platform_msg_id for row in rows if row.platform_msg_id)
    found = uow.turns.find(newest=LOOKED_BACK, conversation=turn.conversation)
    earlier = [each for each in found if each.id != turn.id]
    has_agent = program is None and turn.agent not in WORDLESS
    own = next((each for each in earlier if each.agent == turn.agent), None)
    past = earlier
    if not earlier and race_in(turn.conversation):
        past = uow.turns.find(newest=LOOKED_BACK, conversation=main_conversation(turn.conversation))
    before = unread(uow, turn, earlier) if earlier and has_agent else ()
    # What another agent has read, this one's session does not know.
    knows = session is not None and turn.reason != HANDED_OVER
    unseen = [row for each in before for row in uow.messages.find(turn_id=each.id)]
    prompts = [
        *(PromptMessage(row.content, row.late, id=row.id, unread=True) for row in unseen),
        *(PromptMessage(row.content, row.late, row.acked and knows, row.id) for row in rows),
    ]
    people = {turn.user_id, *(row.from_id for row in (*rows, *unseen))}
    files = [file for one in prompts if not one.known for file in uow.attachments.find(message_id=one.id)]
    # By this name its agent finds the thread again.
    name = f"chat-{turn.conversation.replace(':', '-')}".removesuffix("-")
    is_apart = bool(own_tree(config, turn.conversation))
    # A message that starts its own thread has no past.
    has_past = past or turn.thread not in messages
    ends_checks = uow.deferred.find() and turn.agent not in parallel_programs(config)
    return BegunTurn(
        uow.turns.get(turn.id) or turn,
        tuple(prompts),
        tuple(files),
        posted,
        session.total_cost_usd if session else 0.0,
        "" if session else _numbered(uow, turn, name) if earlier else name,
        program,
        look_back(uow, turn, session_id, config, past, before) if has_past else Missed(),
        to_put_back(uow, turn) if turn.agent == UNDO else None,
        answered=answers_before(uow, turn) if turn.reason in ("interrupted", "stopped") else (),
        messages=messages,
        withdrawn=_end_checks(uow, turn, config) if ends_checks else (),
        choice=choice_for(uow, turn, config, people),
        has_moved=bool(session and own and was_picked(uow, own)),
        is_apart=is_apart,
        has_own_tree=has_agent and is_apart,
        facts=(*uow.facts.find(scope=REPO_SCOPE), *uow.facts.find(scope=turn.user_id)),
    )


def _end_checks(uow: UnitOfWork, turn: TurnRow, config: Config) -> tuple[str, ...]:
    """End running checks: they test a tree at rest, which this turn may change or undo."""
    if turn.agent == UNDO:
        shared = config.agent.isolation == "shared"
        return withdraw_checks(uow, None if shared else turn.conversation, UNDONE)
    return put_off_checks(uow, config, turn.conversation)


def _show_at_once(uow: UnitOfWork, turn: TurnRow, config: Config, program: CommandRule | None) -> str | None:
    """Announce a session at once, and other turns if there is no delay (``output.progressAfterSeconds``). A
    program's output is shown however quiet it is. Returns the message that shows it, None if there is none
    yet."""
    posted, place = turn.progress_op_id, place_of(turn)
    name = turn.agent if race_in(turn.conversation) else ""
    showing = (
        opening(program, turn.id)
        if program
        else progress.running(TurnProgress(), 0, turn.id, turn.agent, name)
    )
    value: Value = "notice" if program else "progress"
    if posted is not None:
        uow.edit(place, posted, showing, value=value)
    elif config.output.verbosity != "quiet" or program:
        posted = uow.post(place, showing, value=value)
    return posted


def _numbered(uow: UnitOfWork, turn: TurnRow, name: str) -> str:
    """The session's name; numbered after a reset, because agents keep what they know under a name."""
    earlier = uow.turns.find(newest=LOOKED_AT, conversation=turn.conversation)
    used = {row.session_id for row in earlier if row.agent == turn.agent and row.session_id}
    return name if not used else f"{name}-{len(used) + 1}"


def prompt_of(begun: BegunTurn, files: Sequence[AttachmentRow], workdir: Path) -> str:
    """The messages in order with the results of their files, as one prompt. A turn that continues is told why, and then
    the answers to its agent's last questions. Programs get only the words."""
    if begun.turn.agent in WORDLESS or begun.program is not None:
        return "\n\n".join(each.text for each in begun.prompts)
    # An agent other than the one that hit its limit has no run to continue: it reads the record.
    continued = "" if begun.turn.reason == LIMIT and not begun.turn.session_id else begun.turn.reason
    parts = [_MOVED.format(workdir=workdir)] if begun.has_moved else []
    if opening := {"interrupted": _RESUMED, "limit": _CUT_SHORT, "stopped": _STOPPED}.get(continued or ""):
        answers = [f"{one_line(question, 300)} -> {answer}" for question, answer in begun.answered]
        parts += [opening, "\n".join([_ANSWERED, *answers])] if answers else [opening]
    for one in attached(begun.prompts, files, str(workdir)) if files else begun.prompts:
        if not one.known:
            mark = _UNREAD if one.unread else _LATE if one.late else ""
            parts.append(f"{mark} {one.text.strip()}" if mark else one.text.strip())
    return "\n\n".join(parts)


class PromptMessage(Struct, frozen=True):
    """One message for the agent; ``id`` is its row's. ``known``: the agent's session already has it;
    ``unread``: it belonged to an earlier turn, which ended before the agent read it."""

    text: str
    late: bool = False
    known: bool = False
    id: str = ""
    unread: bool = False


def system_prompt(repo_path: str, memory: str, teaching: str = "") -> str:
    """The standing instructions: restrictions, the agent's directory, and the block of facts (may be empty)."""
    parts = [RESTRICTIONS, f"You are working in: {repo_path}", _CHANNEL]
    if teaching.strip():
        parts.append(teaching.strip())
    if memory.strip():
        parts.append(memory.strip())
    return "\n\n".join(parts)


def attached(
    messages: Sequence[PromptMessage], files: Sequence[AttachmentRow], repo_path: str
) -> list[PromptMessage]:
    """The messages, each with notes of its files."""
    notes = {one.id: [file_note(f, repo_path) for f in files if f.message_id == one.id] for one in messages}
    return [replace(one, text=with_files(one.text, notes[one.id])) for one in messages]


def with_files(text: str, notes: Sequence[str]) -> str:
    """The message with a line for each attached file."""
    return "\n\n".join(part for part in (text.strip(), "\n".join(notes)) if part)


def file_note(file: AttachmentRow, repo_path: str) -> str:
    """The line about a file: its path, its transcript, or that it is missing."""
    name = one_line(file.name or file.file_id, 100)
    match file.state:
        case "stored":
            kind = one_line(file.mimetype, 60) or "unknown type"
            return f"[attached file: {repo_path}/{file.path} ({kind}, {format_size(file.size_bytes)})]"
        case "transcribed":
            return f"[voice message, transcribed] {file.transcript}"
        case _:
            return f"[attached file {name}: it could not be fetched]"


class Snapshots(Struct):
    """One turn's snapshots of the tree in ``workdir``, so that its changes can be seen, committed and undone;
    ``beginning`` takes ``before``, the one before the turn. If they fail, the turn still runs, but cannot be undone."""

    runtime: Runtime
    turn: TurnRow
    workdir: Path
    before: Snapshot | None = None
    beginning: asyncio.Task[Snapshot | None] | None = None

    async def ready(self) -> None:
        """Take the first snapshot; returns when it is taken or has failed. The turn must not change anything before.
        It starts no earlier because the processors have time while an agent starts up."""
        if self.turn.agent == IMAGE:
            return
        if self.beginning is None:
            self.beginning = asyncio.create_task(self.take(BEFORE), name=f"tree of {self.turn.id}")
        self.before = await asyncio.shield(self.beginning)

    async def take(self, when: str) -> Snapshot | None:
        """A snapshot of the tree as it is, None if that fails."""
        try:
            tree = await self.runtime.agents.tree(self.workdir)
            return await tree.snapshot(f"{self.turn.id}/{when}")
        except CodeButlerError as error:
            self.runtime.log("WRN", f"this run cannot be undone: {error}")
            return None

    async def end(self) -> tuple[str, str] | None:
        """Take the last snapshot, and store the commits of both; returns them if the run changed anything."""
        before, after = self.before, await self.take(AFTER) if self.before else None
        if before is None or after is None:
            return None
        is_same = after.tree == before.tree
        last = before.commit if is_same else after.commit
        try:
            await self.runtime.commit(
                lambda uow: uow.turns.update(self.turn.id, tree_before=before.commit, tree_after=last)
            )
        except StoreError as error:
            self.runtime.log("WRN", f"cannot store what run {self.turn.id} changed: {error}")
        return None if is_same else (before.commit, last)
