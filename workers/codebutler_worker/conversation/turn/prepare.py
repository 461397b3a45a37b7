"""Preparing a turn: written as running, what was asked gathered, its place found, and all its agent is told.

The beginning is one transaction, committed before anything is started: a crash after it is found as an interrupted
turn, never as a silent one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from codebutler.config.memory.file import MEMORY_NAME
from codebutler.config.programs import program_of
from codebutler.config.schema import CommandRule, Config
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import said
from codebutler.domain.model import Post, Value
from codebutler_worker.agents.backend import TurnRequest
from codebutler_worker.agents.survey import instructions
from codebutler_worker.conversation.asking.approvals import answers_before
from codebutler_worker.conversation.parked import LIMIT
from codebutler_worker.conversation.queue import STALE
from codebutler_worker.conversation.turn.history import LOOKED_BACK, Missed, look_back, unread
from codebutler_worker.conversation.turn.prompt import PromptMessage, attached, system_prompt, user_prompt
from codebutler_worker.conversation.turn.terminal import opening
from codebutler_worker.conversation.turn.undo import Snapshots, to_put_back
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, place_of
from codebutler_worker.desk.naming import UNDO, WORDLESS
from codebutler_worker.desk.states import move
from codebutler_worker.memory.block import memory_block, read_memory
from codebutler_worker.memory.facts import TurnNotes
from codebutler_worker.present import progress
from codebutler_worker.present.notices import LATE, own_worktree
from codebutler_worker.present.progress import TurnView
from codebutler_worker.store.rows import REPO_SCOPE, AttachmentRow, FactRow, SessionRow, TurnRow
from codebutler_worker.store.state_dir import STATE_DIR

LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class BegunTurn:
    """A turn that is committed as running, and what its agent is to be told. ``messages`` are the ts of its own."""

    turn: TurnRow
    said: tuple[PromptMessage, ...]
    attachments: tuple[AttachmentRow, ...]
    progress_op_id: str | None
    cost_before_usd: float
    session_name: str
    program: CommandRule | None
    missed: Missed
    put_back: tuple[str, str | None] | None = None
    facts: tuple[FactRow, ...] = ()
    answered: tuple[tuple[str, str], ...] = ()
    messages: tuple[str, ...] = ()

    @property
    def has_words(self) -> bool:
        """Whether it can go on without its files."""
        return bool(self.turn.reason) or any(said.text.strip() for said in self.said)

    @property
    def has_own_tree(self) -> bool:
        """Whether it may change the tree: only then a worktree is made for it. Programs go where their thread is."""
        return self.program is None and self.turn.agent not in WORDLESS


def begin(draft: Draft, turn: TurnRow, config: Config) -> BegunTurn:
    """Write the turn as running, and gather what was asked. What is not shown now is shown if the turn lasts."""
    program = program_of(config, turn.agent)
    session = draft.uow.sessions.get(turn.conversation, turn.agent)
    rows = draft.uow.messages.of_turn(turn.id)
    if program is not None and turn.reason != STALE and any(row.late and not row.acked for row in rows):
        draft.post(place_of(turn), LATE)  # Its output says nothing but what it printed.
    posted = turn.progress_op_id
    if not config.output.progress_after_seconds or (program and program.mode == "interactive"):
        posted = _show_at_once(draft, turn, config, program)
    session_id = session.session_id if session else None
    draft.uow.turns.update(
        turn.id,
        state=move(turn.state, "start"),
        started_at=draft.stamp,
        session_id=session_id,
        progress_op_id=posted,
    )
    messages = tuple(row.platform_msg_id for row in rows if row.platform_msg_id)
    earlier = [each for each in draft.uow.turns.newest(LOOKED_BACK, turn.conversation) if each.id != turn.id]
    has_agent = program is None and turn.agent not in WORDLESS
    before = unread(draft, turn, earlier) if earlier and has_agent else ()
    said = [
        *(
            PromptMessage(row.content, row.late, id=row.id, unread=True)
            for each in before
            for row in draft.uow.messages.of_turn(each.id)
        ),
        *(PromptMessage(row.content, row.late, row.acked and session is not None, row.id) for row in rows),
    ]
    new = {one.id for one in said if not one.known}
    files = [file for each in (*before, turn) for file in draft.uow.attachments.of_turn(each.id)]
    # A message that begins a thread of its own has no past.
    has_past = earlier or turn.thread_ts not in messages
    return BegunTurn(
        draft.uow.turns.get(turn.id) or turn,
        tuple(said),
        tuple(file for file in files if file.message_id in new),
        posted,
        session.total_cost_usd if session else 0.0,
        "" if session else _session_name(draft, turn),
        program,
        look_back(draft, turn, session_id, config, earlier, before) if has_past else Missed(),
        to_put_back(draft, turn) if turn.agent == UNDO else None,
        answered=answers_before(draft, turn) if turn.reason in ("interrupted", "stopped") else (),
        messages=messages,
        facts=(*draft.uow.facts.of(REPO_SCOPE), *draft.uow.facts.of(turn.user_id)),
    )


def _show_at_once(draft: Draft, turn: TurnRow, config: Config, program: CommandRule | None) -> str | None:
    """That a session has begun, and everything where nothing is to wait (``output.progressAfterSeconds``). The output
    of a program is shown however quiet it is. Returns the message that shows it, None if none does yet."""
    posted, place = turn.progress_op_id, place_of(turn)
    showing = opening(program, turn.id) if program else progress.running(TurnView(), 0, turn.id, turn.agent)
    value: Value = "notice" if program else "progress"
    if posted is not None:
        draft.edit(place, posted, showing, value=value)
    elif config.output.verbosity != "quiet" or program:
        posted = draft.post(place, showing, value=value)
    return posted


def _session_name(draft: Draft, turn: TurnRow) -> str:
    """``slack-<channel>-<thread>``, by which its agent finds the thread again; numbered after a reset, because an agent
    keeps what it had under a name."""
    channel, _, thread = turn.conversation.partition(":")
    name = f"slack-{channel}-{thread}".removesuffix("-")
    earlier = draft.uow.turns.newest(LOOKED_AT, turn.conversation)
    used = {row.session_id for row in earlier if row.agent == turn.agent and row.session_id}
    return name if not used else f"{name}-{len(used) + 1}"


def keep_session(draft: Draft, turn: TurnRow, session_id: str) -> None:
    """The session with which the conversation goes on; what it has cost so far stays with it."""
    known = draft.uow.sessions.get(turn.conversation, turn.agent)
    draft.uow.sessions.put(
        SessionRow(
            conversation=turn.conversation,
            channel_id=turn.channel_id,
            thread_ts=turn.thread_ts,
            agent=turn.agent,
            session_id=session_id,
            updated_at=draft.stamp,
            total_cost_usd=known.total_cost_usd if known and known.session_id == session_id else 0.0,
        )
    )


async def find_workdir(desk: Desk, begun: BegunTurn) -> Path:
    """Where it works. Raises CodeButlerError with one line that says what to do."""
    task = None
    if desk.settings.config.agent.isolation != "shared" and begun.has_own_tree:
        task = desk.redactor.redact(" ".join(said.text for said in begun.said))
    return await desk.agents.workdir(begun.turn.conversation, task=task)


async def tidy_workdir(desk: Desk, begun: BegunTurn) -> None:
    """Leave no worktree in which nothing was changed; tell of one that stays, once. Nothing may run in it."""
    turn = begun.turn
    if desk.settings.config.agent.isolation == "shared" or not begun.has_own_tree:
        return
    try:
        if branch := await desk.agents.tidy(turn.conversation):
            await desk.commit(lambda draft: _tell_branch(draft, turn, branch))
    except CodeButlerError as error:
        desk.report.log("WRN", f"after turn {turn.id}: {error}")


def _tell_branch(draft: Draft, turn: TurnRow, branch: str) -> None:
    op_id = sha256(f"{turn.conversation} {branch}".encode()).hexdigest()
    if draft.uow.outbox.get(op_id) is None:
        post = Post(message=said(own_worktree(branch)), thread_ts=turn.thread_ts or None)
        draft.add(place_of(turn), post, op_id=op_id)


def prompt_of(begun: BegunTurn, files: Sequence[AttachmentRow], workdir: Path) -> str:
    """The messages with what came of their files; agents of ours take their words alone."""
    if begun.turn.agent in WORDLESS or begun.program is not None:
        return "\n\n".join(said.text for said in begun.said)
    # Another agent than the one that met its limit has nothing to go on with: it reads the record.
    continued = "" if begun.turn.reason == LIMIT and not begun.turn.session_id else begun.turn.reason
    messages = attached(begun.said, files, str(workdir)) if files else begun.said
    return user_prompt(messages, continued or "", begun.answered)


def request_of(
    desk: Desk, begun: BegunTurn, prompt: str, snapshots: Snapshots, session_id: str | None
) -> TurnRequest:
    """All that the agent is told. A program is taught by its own backend how to say something at once."""
    repo, turn, workdir = Path(desk.settings.path), begun.turn, snapshots.workdir
    prompt_file = desk.settings.config.envelope.prompt_file
    teaching = instructions(repo, prompt_file) if begun.program is None else ""
    memory = ""
    if begun.facts or os.path.lexists(repo / STATE_DIR / MEMORY_NAME):
        memory = memory_block(read_memory(repo / STATE_DIR), begun.facts)
    return TurnRequest(
        turn_id=turn.id,
        conversation=turn.conversation,
        prompt=prompt,
        workdir=workdir,
        session_id=session_id,
        session_name=begun.session_name,
        system_prompt=system_prompt(str(workdir), memory, teaching),
        cost_before_usd=begun.cost_before_usd,
        put_back=begun.put_back,
        ready=snapshots.ready,
        notes=TurnNotes(desk, turn),
    )
