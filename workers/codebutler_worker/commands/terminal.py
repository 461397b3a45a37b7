"""Moves a session from a terminal to a thread and back: ``!continue ID`` takes it over, ``!terminal`` hands it
over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from codebutler.config.agent_sessions import PastSession
from codebutler.config.permission import admitted, may
from codebutler.domain.message import said
from codebutler.domain.refs import ConversationRef, MessageRef
from codebutler.text.markup import fence, message_link, plain
from codebutler.text.wording import count, one_line, span
from codebutler_worker.agents.rollcall import SHARED, Desk
from codebutler_worker.commands.table import Invocation
from codebutler_worker.present.lines import code, visible
from codebutler_worker.runtime.deferred import LINE, CommandReply, sent_as
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import LIVE, Todo, conversation_id, prefixes_of, using
from codebutler_worker.store.rows import DeferredRow, SessionRow
from codebutler_worker.store.unit_of_work import UnitOfWork

OUTSIDE = "Say it outside threads: the session gets its own thread."
IN_CHANNEL = "Say it in the repository's channel: the session gets a thread there."
STILL_WORKING = "It is still working: wait for the answer or say `!stop`, then say `!terminal` again."
NO_SESSION = (
    "This thread has no Claude Code or Kimi Code session, and only those can continue in a terminal. "
    "Outside threads, `!terminal` lists the sessions started in one."
)
KNOWN = "That session continues in {thread}."
THIS_THREAD = "a thread of this channel"
AT_DESK = (
    "Continue this conversation in a terminal on the machine:\n{command}\nReplies here continue from "
    "there. Close it there first: while it is open, this thread continues with a copy."
)
NEW_ID = (
    "This thread no longer has a worktree, so this is a copy of its session in the repository itself. Continue it in a "
    "terminal on the machine:\n{command}\nTo come back, say `!continue {id}` in the channel."
)
BIND = "bind"


def run(asked: Invocation) -> Todo:
    """In a thread, how to continue its session in a terminal; elsewhere, the sessions started in a terminal."""
    if asked.conversation is None:
        return asked.defer()
    if asked.turns(*LIVE):
        return asked.reply(STILL_WORKING)
    agents = [turn.agent for turn in asked.newest(20)]
    for agent in dict.fromkeys([*agents, *SHARED]):
        session = asked.uow.sessions.get(asked.conversation, agent)
        if agent in SHARED and session is not None and session.session_id:
            return asked.defer(f"{agent} {session.session_id} {asked.conversation}")
    return asked.reply(NO_SESSION)


async def answer(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """The command, or the list."""
    desk = Desk(runtime.settings, runtime.agents.home)
    if not command.argument:
        sessions = await desk.sessions()
        now_s = runtime.clock.now().timestamp()
        return CommandReply((said(listed(sessions, now_s, runtime.redactor.redact)),))
    agent, session_id, conversation = command.argument.split(" ", 2)
    found = await desk.hand_over(agent, session_id, conversation)
    told = AT_DESK if found.session_id == session_id else NEW_ID
    return CommandReply((said(told.format(command=fence(found.command), id=found.session_id)),))


def adopt(asked: Invocation) -> Todo:
    """``!continue ID``: deferred, because the session has to be looked for."""
    if not asked.in_own_channel:
        return asked.reply(IN_CHANNEL)
    if asked.conversation is not None and asked.settings.config.agent.scope == "thread":
        return asked.reply(OUTSIDE)
    return asked.defer(asked.argument)


async def answer_adopt(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Summarise the session; from then on the thread continues it."""
    if command.argument.startswith(f"{BIND} "):
        return await _bind(runtime, command)
    settings = runtime.settings
    session = await Desk(settings, runtime.agents.home).find(command.argument)
    where = using(settings.config, settings.channel_id, session.agent)
    decision = may(admitted(command.user_id), "continue", where)
    if not decision.allowed:
        return CommandReply((said(decision.told),), ok=False)
    if thread := await runtime.commit(partial(_thread_of, session_id=session.id)):
        return CommandReply((said(KNOWN.format(thread=thread)),))
    default = session.agent == settings.config.agent.default
    prefix = "" if default else prefixes_of(session.agent)[-1]
    summary = said(taken_over(session, prefix, runtime.clock.now().timestamp(), runtime.redactor.redact))
    if command.thread is None:
        # A slash command: its thread starts with the summary.
        return CommandReply(line=summary, then=f"{BIND} {session.id}")
    await _take(runtime, session, command.thread)
    return CommandReply((summary,))


async def _bind(runtime: Runtime, command: DeferredRow) -> CommandReply:
    session = await Desk(runtime.settings, runtime.agents.home).find(command.argument.partition(" ")[2])
    posted = await runtime.commit(lambda uow: uow.outbox.get(sent_as(command.id, LINE)))
    if posted is not None and posted.ref:
        await _take(runtime, session, posted.ref)
    return CommandReply()


async def _take(runtime: Runtime, session: PastSession, thread: MessageRef) -> None:
    """Give the session to the thread."""
    settings = runtime.settings
    conversation = conversation_id(settings.config, settings.channel_id, thread)
    adopted = await Desk(settings, runtime.agents.home).adopt(session, conversation)
    place = (conversation, settings.channel_id, thread)
    await runtime.commit(partial(_put, place=place, agent=session.agent, session_id=adopted))


def _put(
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


# Sessions from a terminal, as people read them. Pure.

TITLE_CHARS, ASKED_CHARS, ANSWER_CHARS = 80, 300, 1_500
LAST_ASKED = 3
LISTED = 8
TITLES = {"claude": "Claude Code", "kimi": "Kimi Code"}
NONE_HERE = (
    "No Claude Code or Kimi Code session was started in a terminal in this repository. In a thread, "
    "`!terminal` shows how to continue it in one."
)
Redact = Callable[[str], str]


def ago(session: PastSession, now_s: float) -> str:
    """``4m12s ago``, or whole days."""
    seconds = max(0.0, now_s - session.changed_s)
    return f"{span(seconds) if seconds < 86_400 else f'{int(seconds // 86_400)}d'} ago"


def listed(sessions: Sequence[PastSession], now_s: float, redact: Redact) -> str:
    """The newest, each with its first words, its age and the command that takes it over."""
    if not sessions:
        return NONE_HERE
    lines = [
        f"• {plain(_line(each.asked[0], redact, TITLE_CHARS))} · {TITLES[each.agent]} · {ago(each, now_s)}\n"
        f"   `!continue {each.id}`"
        for each in sessions[:LISTED]
    ]
    more = [f"… and {len(sessions) - LISTED} more"] if len(sessions) > LISTED else []
    return "\n".join(["Started in a terminal here:", *lines, *more])


def taken_over(session: PastSession, prefix: str, now_s: float, redact: Redact) -> str:
    """Summary of a session that continues in this thread. ``prefix``: what calls its agent; "" for the
    default one."""
    asked = [_line(text, redact, ASKED_CHARS) for text in session.asked]
    shown = asked if len(asked) <= LAST_ASKED + 1 else [asked[0], "", *asked[-LAST_ASKED:]]
    left_out = f"_… {count(len(asked) - LAST_ASKED - 1, 'message')} left out …_"
    answer = visible_text(redact(session.answer))
    cut = answer if len(answer) <= ANSWER_CHARS else f"{answer[: ANSWER_CHARS - 1]}…"
    how = f"Write `{prefix}: …` in this thread" if prefix else "Reply in this thread"
    parts = [
        f"📥 **{TITLES[session.agent]}**, session {code(session.id)}, last used {ago(session, now_s)}",
        "Asked:" if asked else "",
        *(f"• {plain(text)}" if text else left_out for text in shown),
        "Last answer:" if cut else "",
        *(f"> {plain(line)}" for line in cut.splitlines()),
        f"{how} to continue it, with its full history.",
    ]
    return "\n".join(part for part in parts if part)


def _line(text: str, redact: Redact, limit: int) -> str:
    return visible(one_line(redact(text), limit))


def visible_text(text: str) -> str:
    """``visible`` for several lines."""
    return "\n".join(visible(line) for line in text.splitlines())
