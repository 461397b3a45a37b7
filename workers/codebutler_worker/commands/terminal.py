"""Moves a session from a terminal to a thread and back: ``!continue ID`` takes it over, ``!terminal`` hands it
over."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from codebutler.config.agent_sessions import (
    CLAUDE,
    KIMI,
    PastSession,
    files_of,
    find_session,
    terminal_sessions,
)
from codebutler.config.permission import admitted, may
from codebutler.config.schema import RepoSettings
from codebutler.domain.message import said
from codebutler.domain.refs import ConversationRef, MessageRef
from codebutler.text.markup import fence, message_link, plain
from codebutler.text.wording import count, one_line
from codebutler_worker.agents.rollcall import resume_words
from codebutler_worker.agents.shared_sessions import brought_to
from codebutler_worker.commands.showing import format_age
from codebutler_worker.commands.table import Invocation
from codebutler_worker.present.lines import code, visible
from codebutler_worker.runtime.deferred import LINE, CommandReply, sent_as
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import LIVE, Todo, conversation_id, prefixes_of, using
from codebutler_worker.store.rows import DeferredRow, SessionRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tree.worktrees import existing, tree_of

OUTSIDE = "Say it outside threads: the session gets its own thread."
IN_CHANNEL = "Say it in the repository's channel: the session gets a thread there."
STILL_WORKING = "It is still working: wait for the answer or say `!stop`, then say `!terminal` again."
NO_SESSION = (
    "This thread has no Claude Code or Kimi Code session, and only those can continue in a terminal. "
    "Outside threads, `!terminal` lists the sessions started in one."
)
IN_OTHER_THREAD = "That session continues in {thread}."
THIS_THREAD = "a thread of this channel"
IN_TERMINAL = (
    "Continue this conversation in a terminal on the machine:\n{command}\nReplies here continue from "
    "there. Close it there first: while it is open, this thread continues with a copy."
)
NEW_ID = (
    "This thread no longer has a worktree, so this is a copy of its session in the repository itself. Continue it in a "
    "terminal on the machine:\n{command}\nTo come back, say `!continue {id}` in the channel."
)
BIND = "bind"
TITLE_CHARS, PROMPT_CHARS, ANSWER_CHARS = 80, 300, 1_500
LAST_PROMPTS = 3
LISTED = 8
TITLES = {"claude": "Claude Code", "kimi": "Kimi Code"}
NONE_HERE = (
    "No Claude Code or Kimi Code session was started in a terminal in this repository. In a thread, "
    "`!terminal` shows how to continue it in one."
)
Redact = Callable[[str], str]
SHARED = (CLAUDE, KIMI)
"""The agents whose sessions can continue in a terminal."""


def run(invocation: Invocation) -> Todo:
    """In a thread, how to continue its session in a terminal; elsewhere, the sessions started in a terminal."""
    if invocation.conversation is None:
        return invocation.defer()
    if invocation.turns(*LIVE):
        return invocation.reply(STILL_WORKING)
    agents = [turn.agent for turn in invocation.newest(20)]
    for agent in dict.fromkeys([*agents, *SHARED]):
        session = invocation.uow.sessions.get(invocation.conversation, agent)
        if agent in SHARED and session is not None and session.session_id:
            return invocation.defer(f"{agent} {session.session_id} {invocation.conversation}")
    return invocation.reply(NO_SESSION)


async def answer(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """The command, or the list."""
    terminal = TerminalSessions(runtime.settings, runtime.agents.home)
    if not command.argument:
        sessions = await terminal.sessions()
        now_s = runtime.clock.now().timestamp()
        return CommandReply((said(render_sessions(sessions, now_s, runtime.redactor.redact)),))
    agent, session_id, conversation = command.argument.split(" ", 2)
    handover = await terminal.hand_over(agent, session_id, conversation)
    text = IN_TERMINAL if handover.session_id == session_id else NEW_ID
    return CommandReply((said(text.format(command=fence(handover.command), id=handover.session_id)),))


def adopt(invocation: Invocation) -> Todo:
    """``!continue ID``: deferred, because the session has to be looked for."""
    if not invocation.in_own_channel:
        return invocation.reply(IN_CHANNEL)
    if invocation.conversation is not None and invocation.settings.config.agent.scope == "thread":
        return invocation.reply(OUTSIDE)
    return invocation.defer(invocation.argument)


async def answer_adopt(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Summarise the session; from then on the thread continues it."""
    if command.argument.startswith(f"{BIND} "):
        return await _bind(runtime, command)
    settings = runtime.settings
    session = await TerminalSessions(settings, runtime.agents.home).find(command.argument)
    where = using(settings.config, settings.channel_id, session.agent)
    decision = may(admitted(command.user_id), "continue", where)
    if not decision.allowed:
        return CommandReply((said(decision.message),), ok=False)
    if thread := await runtime.commit(partial(_thread_of, session_id=session.id)):
        return CommandReply((said(IN_OTHER_THREAD.format(thread=thread)),))
    default = session.agent == settings.config.agent.default
    prefix = "" if default else prefixes_of(session.agent)[-1]
    summary = said(summarize(session, prefix, runtime.clock.now().timestamp(), runtime.redactor.redact))
    if command.thread is None:
        # A slash command: its thread starts with the summary.
        return CommandReply(line=summary, then=f"{BIND} {session.id}")
    await _bind_to_thread(runtime, session, command.thread)
    return CommandReply((summary,))


async def _bind(runtime: Runtime, command: DeferredRow) -> CommandReply:
    session = await TerminalSessions(runtime.settings, runtime.agents.home).find(
        command.argument.partition(" ")[2]
    )
    posted = await runtime.commit(lambda uow: uow.outbox.get(sent_as(command.id, LINE)))
    if posted is not None and posted.ref:
        await _bind_to_thread(runtime, session, posted.ref)
    return CommandReply()


async def _bind_to_thread(runtime: Runtime, session: PastSession, thread: MessageRef) -> None:
    settings = runtime.settings
    conversation = conversation_id(settings.config, settings.channel_id, thread)
    adopted = await TerminalSessions(settings, runtime.agents.home).adopt(session, conversation)
    place = (conversation, settings.channel_id, thread)
    await runtime.commit(partial(_save_session, place=place, agent=session.agent, session_id=adopted))


def _save_session(
    uow: UnitOfWork, place: tuple[str, ConversationRef, MessageRef], agent: str, session_id: str
) -> None:
    conversation, channel_id, thread = place
    row = SessionRow(
        conversation=conversation,
        channel_id=channel_id,
        thread=thread,
        agent=agent,
        session_id=session_id,
        updated_at=uow.stamp,
    )
    uow.sessions.put(row)


def _thread_of(uow: UnitOfWork, session_id: str) -> str:
    """A link to the thread that has the session; "" if none has."""
    row = uow.sessions.holding(session_id)
    if row is None:
        return ""
    return message_link(row.channel_id, row.thread, "its thread") if row.thread else THIS_THREAD


def ago(session: PastSession, now_s: float) -> str:
    """How long ago the session was last used."""
    return f"{format_age(max(0.0, now_s - session.changed_s))} ago"


def render_sessions(sessions: Sequence[PastSession], now_s: float, redact: Redact) -> str:
    """The newest, each with its first words, its age and the command that takes it over."""
    if not sessions:
        return NONE_HERE
    lines = [
        f"• {plain(_clean_line(each.prompts[0], redact, TITLE_CHARS))} · {TITLES[each.agent]} · {ago(each, now_s)}\n"
        f"   `!continue {each.id}`"
        for each in sessions[:LISTED]
    ]
    more = [f"… and {len(sessions) - LISTED} more"] if len(sessions) > LISTED else []
    return "\n".join(["Started in a terminal here:", *lines, *more])


def summarize(session: PastSession, prefix: str, now_s: float, redact: Redact) -> str:
    """Summary of a session that continues in this thread. ``prefix``: what calls its agent; "" for the
    default one."""
    prompts = [_clean_line(text, redact, PROMPT_CHARS) for text in session.prompts]
    shown_prompts = (
        prompts if len(prompts) <= LAST_PROMPTS + 1 else [prompts[0], "", *prompts[-LAST_PROMPTS:]]
    )
    omitted = f"_… {count(len(prompts) - LAST_PROMPTS - 1, 'message')} left out …_"
    answer = "\n".join(map(visible, redact(session.answer).splitlines()))
    cut = answer if len(answer) <= ANSWER_CHARS else f"{answer[: ANSWER_CHARS - 1]}…"
    how = f"Write `{prefix}: …` in this thread" if prefix else "Reply in this thread"
    parts = [
        f"📥 **{TITLES[session.agent]}**, session {code(session.id)}, last used {ago(session, now_s)}",
        "Asked:" if prompts else "",
        *(f"• {plain(text)}" if text else omitted for text in shown_prompts),
        "Last answer:" if cut else "",
        *(f"> {plain(line)}" for line in cut.splitlines()),
        f"{how} to continue it, with its full history.",
    ]
    return "\n".join(part for part in parts if part)


def _clean_line(text: str, redact: Redact, limit: int) -> str:
    return visible(one_line(redact(text), limit))


class Handover(Struct, frozen=True):
    """How a session continues in a terminal: the command, and its id there."""

    command: str
    session_id: str


class TerminalSessions(Struct, frozen=True):
    """The sessions of one repository's agents. ``home`` is where their programs keep them."""

    settings: RepoSettings
    home: Path

    @property
    def _repo(self) -> Path:
        return Path(self.settings.path)

    async def sessions(self) -> list[PastSession]:
        """Sessions started in a terminal in the repository, newest first."""
        return await asyncio.to_thread(terminal_sessions, self.home, self._repo)

    async def find(self, named: str) -> PastSession:
        """The session of that id, or whose id begins so. Raises CodeButlerError."""
        return await asyncio.to_thread(find_session, self.home, self._repo, named)

    async def adopt(self, session: PastSession, conversation: str) -> str:
        """Let the conversation's agent resume it; returns the id to resume, which is a copy if it is
        open in a terminal or the conversation works in a worktree. Raises AgentUnavailableError."""
        given = (self.home, session.agent, session.id, self._repo, self._place_of(conversation))
        return await asyncio.to_thread(brought_to, *given)

    async def moved(self, agent: str, session_id: str, begun_in: str, conversation: str) -> str:
        """The session that an agent began in the worktree of another conversation, as this conversation's agent can
        resume it. Raises AgentUnavailableError."""
        worktree = tree_of(self._repo, begun_in)
        given = (self.home, agent, session_id, worktree, self._place_of(conversation))
        return await asyncio.to_thread(brought_to, *given)

    def _place_of(self, conversation: str) -> Path:
        isolated = self.settings.config.agent.isolation == "worktree"
        return tree_of(self._repo, conversation) if isolated else self._repo

    async def hand_over(self, agent: str, session_id: str, conversation: str) -> Handover:
        """How the conversation's session continues in a terminal, where its files are, or (its worktree is gone) in the
        repository with a copy of it. Raises AgentUnavailableError."""
        return await asyncio.to_thread(self._hand_over, agent, session_id, conversation)

    def _hand_over(self, agent: str, session_id: str, conversation: str) -> Handover:
        begun_in = tree_of(self._repo, conversation)
        workdir = existing(self._repo, conversation) or self._repo
        places = [each for each in files_of(self.home, workdir) if each.agent == agent]
        if not any(each.has(session_id) for each in places):
            session_id = brought_to(self.home, agent, session_id, begun_in, workdir)
        words = " ".join([*resume_words(self.settings, self.home, agent), session_id])
        return Handover(f"cd {shlex.quote(str(workdir))} && {words}", session_id)
