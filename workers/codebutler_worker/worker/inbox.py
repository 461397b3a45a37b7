"""An event from the channel becomes rows and operations, within one transaction. There is no other I/O.

Events are deduplicated for ever: one whose key is known changes nothing, so the parent may deliver it any number of
times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from codebutler.config.permission import Where, admitted, may
from codebutler.config.programs import is_session
from codebutler.config.schema import RepoSettings
from codebutler.domain.commands import visible_only_to
from codebutler.domain.model import (
    ButtonClicked,
    Command,
    Event,
    MessageDeleted,
    MessageEdited,
    MessagePosted,
    Prompt,
    Request,
    SlashCommand,
)
from codebutler_worker.commands.changes import NO_CHECKS, NO_COMMAND, resolved
from codebutler_worker.commands.knowledge import taught
from codebutler_worker.commands.logs import withdraw
from codebutler_worker.commands.table import Invocation, run_command, understood
from codebutler_worker.conversation.approvals import is_polled
from codebutler_worker.conversation.clicks import click, edited_late
from codebutler_worker.conversation.deciding import decide_typed
from codebutler_worker.conversation.marks import QUEUED, clear_mark, end_message
from codebutler_worker.conversation.messages import Incoming, enqueue, park, take_in, type_in
from codebutler_worker.conversation.parked import drop_parked
from codebutler_worker.conversation.queue import waiting_turn, withdraw_message, withdraw_turn
from codebutler_worker.present.lines import one_line
from codebutler_worker.present.notices import LATE_COMMAND
from codebutler_worker.runtime.turns import LIVE, Todo, agent_name, conversation_id
from codebutler_worker.skills import Library
from codebutler_worker.store.rows import MessageRow, message_id
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of

LOGGED_CHARS = 500
MISUNDERSTOOD = "!"
"""In a message's row, in the place of an agent: a word of ours that was not understood, so an edit may mend it."""
SAY_WHAT = "Say what I should do, or `!help`."
OUR_ERROR = "❌ I could not handle that because of an internal error: see the log, then ask again."


@dataclass(frozen=True, slots=True)
class EventInbox:
    """Takes the events of one repository's channel."""

    settings: RepoSettings
    skills: Library | None = None

    def take(self, uow: UnitOfWork, seq: int, event: Event, request: Request) -> Todo:
        """Accept the event; returns what is left to do after the commit."""
        if not uow.inbox.accept(event.key, seq):
            return Todo()
        if not isinstance(request, Prompt) or request.prefix is not None:
            request = self._resolved(event, request)
        elif self.settings.config.agent.mention == "mention" and _is_uncalled(event):
            return self._overheard(uow, event)
        match event:
            case MessagePosted():
                return self._posted(uow, event, request)
            case SlashCommand():
                return self._slash(uow, event, request)
            case MessageEdited():
                return self._edited(uow, event, request)
            case MessageDeleted():
                return self._deleted(uow, event)
            case ButtonClicked():
                return click(uow, self.settings.config, event)

    def give_up(self, uow: UnitOfWork, seq: int, event: Event) -> None:
        """Accept an event that could not be handled, and say so instead of staying silent."""
        uow.inbox.accept(event.key, seq)
        if isinstance(event, MessagePosted):
            self._decline(uow, event, OUR_ERROR)
        else:
            uow.post(ThreadPlace(f"{event.channel}:", None), OUR_ERROR)

    def stop_everything(self, uow: UnitOfWork) -> Todo:
        """Withdraw every queued turn; every live one is to be stopped."""
        for turn in uow.turns.in_states("queued"):
            withdraw_turn(uow, turn)
        for turn in uow.turns.in_states("parked"):
            drop_parked(uow, turn)
        withdraw(uow)
        return Todo(stop=tuple(turn.id for turn in uow.turns.in_states(*LIVE)))

    def _posted(self, uow: UnitOfWork, event: MessagePosted, request: Request) -> Todo:
        note, config = f'{event.user}: "{one_line(event.text, LOGGED_CHARS)}"', self.settings.config
        todo = Todo()
        match request:
            case Prompt(text=text, prefix=prefix) if not (
                text.strip() or event.files or self._is_session(prefix)
            ):
                self._decline(uow, event, SAY_WHAT)
            case Prompt():
                said = _incoming(event, request)
                # Only within a thread may words answer what a card asks, or go to a session.
                within = event.thread_ts is not None
                answered = decide_typed(uow, config, event, request) if within else None
                answered = answered or (type_in(uow, config, said) if within else None)
                take = park if event.stale else take_in
                todo = answered or take(uow, config, said)
            case Command() if event.stale:
                uow.post(ThreadPlace(f"{event.channel}:{event.root_ts}", event.root_ts), LATE_COMMAND)
            case Command() if request == NO_CHECKS:
                self._decline(uow, event, NO_COMMAND)
            case Command():
                todo = self._said(uow, request, event)
        return todo.logged("MSG", note)

    def _decline(self, uow: UnitOfWork, event: MessagePosted, why: str) -> None:
        """There will be no turn: tell whoever waits for an outcome, a script perhaps, that it was refused."""
        place = ThreadPlace(f"{event.channel}:{event.root_ts}", event.root_ts)
        end_message(uow, place, event.ts, "refused", after=uow.post(place, why))

    def _resolved(self, event: Event, request: Request) -> Request:
        """A word of ours that asks an agent, as a prompt."""
        request = resolved(request, self.settings)
        if self.skills is None:
            return request
        return taught(request, event.user, self.settings, self.skills)

    def _overheard(self, uow: UnitOfWork, event: MessagePosted) -> Todo:
        """It counts where a card asks or a program reads, and starts nothing of its own."""
        config, request = self.settings.config, Prompt(text=event.text)
        note = f'{event.user}: "{one_line(event.text, LOGGED_CHARS)}"'
        polled = is_polled(uow, config, event)
        decided = decide_typed(uow, config, event, request)
        if decided is not None:
            return decided.logged("MSG", note)
        said = _incoming(event, request)
        if (typed := type_in(uow, config, said)) is not None:
            return typed.logged("MSG", note)
        if polled and not event.stale:
            return take_in(uow, config, said).logged("MSG", note)
        return Todo()

    def _is_session(self, prefix: str | None) -> bool:
        """Whether that begins a session, which needs no words."""
        return prefix is not None and is_session(self.settings.config, prefix)

    def _slash(self, uow: UnitOfWork, event: SlashCommand, request: Request) -> Todo:
        note = f'{event.user}: "{event.command} {one_line(event.text, LOGGED_CHARS)}"'
        if isinstance(request, Command):
            return self._typed(uow, request, event).logged("MSG", note)
        if not isinstance(request, Prompt):
            return Todo().logged("MSG", note)
        said = Incoming(
            channel=event.channel,
            ts="",
            thread_ts=None,
            user=event.user,
            text=request.text,
            prefix=request.prefix,
            conversation=f"{event.channel}:slash-{event.trigger_id}",
        )
        return take_in(uow, self.settings.config, said).logged("MSG", note)

    def _said(self, uow: UnitOfWork, command: Command, event: MessagePosted | MessageEdited) -> Todo:
        """A command in a message: answered in its thread."""
        known = understood(command.name, command.argument)
        if not known:
            self._keep_misunderstood(uow, event)
        reply_ts = event.thread_ts or event.ts
        conversation = self._conversation(event.channel, event.thread_ts)
        place = ThreadPlace(conversation or f"{event.channel}:{reply_ts}", reply_ts)
        message = message_id(event.channel, event.ts)
        todo = run_command(Invocation(uow, self.settings, command, place, conversation, event.user, message))
        if not todo.deferred:
            uow.ended(place, (event.ts,), "done" if known else "refused")
        return todo

    def _typed(self, uow: UnitOfWork, command: Command, event: SlashCommand) -> Todo:
        """A slash command: the chat shows no message to answer, so whoever typed it is told, or the channel."""
        only_for = visible_only_to(event.user, command.name, command.argument)
        conversation = self._conversation(event.channel, None)
        place = ThreadPlace(conversation or f"{event.channel}:", None, only_for=only_for)
        return run_command(Invocation(uow, self.settings, command, place, conversation, event.user))

    def _conversation(self, channel: str, thread_ts: str | None) -> str | None:
        """The conversation that is meant, None for all of the channel's."""
        config = self.settings.config
        whole = config.agent.scope == "channel"
        return conversation_id(config, channel, thread_ts or "") if thread_ts or whole else None

    def _keep_misunderstood(self, uow: UnitOfWork, event: MessagePosted | MessageEdited) -> None:
        if uow.messages.get(event.channel, event.ts) is not None:
            uow.messages.set_agent(event.channel, event.ts, MISUNDERSTOOD)
            return
        row = MessageRow(
            id=message_id(event.channel, event.ts),
            from_id=event.user,
            channel_id=event.channel,
            content=event.text,
            timestamp=uow.stamp,
            acked=True,
            platform_msg_id=event.ts,
            order=event.order,
            thread_ts=event.thread_ts or event.ts,
            agent=MISUNDERSTOOD,
        )
        uow.messages.add(row)

    def _edited(self, uow: UnitOfWork, event: MessageEdited, request: Request) -> Todo:
        said_before = uow.messages.get(event.channel, event.ts)
        if said_before is None:
            return Todo()
        if not self._may_amend(event, said_before):
            return Todo().logged("WRN", f"{event.user} edited a message of {said_before.from_id}: ignored")
        found = waiting_turn(uow, event.channel, event.ts)
        if found is None:
            return self._mended(uow, event, request, said_before)
        message, turn = found
        note = f'{event.user} edited: "{one_line(event.text, LOGGED_CHARS)}"'
        if isinstance(request, Prompt):
            if agent_name(self.settings.config, request.prefix) == turn.agent:
                uow.messages.set_text(event.channel, event.ts, request.text)
                return Todo().logged("MSG", note)
            withdraw_message(uow, message)
            said = Incoming(
                channel=event.channel,
                ts=event.ts,
                order=message.order,
                thread_ts=event.thread_ts,
                user=event.user,
                text=request.text,
                prefix=request.prefix,
            )
            return enqueue(uow, self.settings.config, said).logged("MSG", note)
        withdraw_message(uow, message)
        clear_mark(uow, place_of(turn), message, QUEUED)
        if isinstance(request, Command):
            return self._said(uow, request, event).logged("MSG", note)
        return Todo().logged("MSG", note)

    def _may_amend(self, event: MessageEdited | MessageDeleted, message: MessageRow) -> bool:
        """Words that run under somebody's name are that somebody's own."""
        where = Where(self.settings.config, event.channel, author=message.from_id)
        return may(admitted(event.user), "amend", where).allowed

    def _mended(self, uow: UnitOfWork, event: MessageEdited, request: Request, message: MessageRow) -> Todo:
        """A command that was not understood did nothing: an edit of it counts as a new message."""
        if message.turn_id is not None:
            return edited_late(uow, event, request, message)
        if message.agent != MISUNDERSTOOD:
            return Todo()
        uow.messages.set_agent(event.channel, event.ts, None)
        said = MessagePosted(
            channel=event.channel,
            ts=event.ts,
            sent_at=event.sent_at,
            order=message.order,
            is_direct=event.is_direct,
            user=event.user,
            text=event.text,
            thread_ts=event.thread_ts,
        )
        return self._posted(uow, said, request)

    def _deleted(self, uow: UnitOfWork, event: MessageDeleted) -> Todo:
        found = waiting_turn(uow, event.channel, event.ts)
        if found is None or not self._may_amend(event, found[0]):
            return Todo()
        withdraw_message(uow, found[0])
        return Todo().logged("MSG", f"{event.user} deleted a message that had not started")


def _is_uncalled(event: Event) -> TypeGuard[MessagePosted]:
    """Whether it does not call us: plain talk is let in where its thread waits for words."""
    return isinstance(event, MessagePosted) and event.origin == "chat" and not event.mentioned


def _incoming(event: MessagePosted, request: Prompt) -> Incoming:
    return Incoming(
        channel=event.channel,
        ts=event.ts,
        order=event.order,
        thread_ts=event.thread_ts,
        user=event.user,
        text=request.text,
        prefix=request.prefix,
        late=event.late,
        handled=event.handled != "no",
        files=event.files,
        job=event.job,
    )
