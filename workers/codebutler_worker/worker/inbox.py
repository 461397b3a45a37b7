"""Turns an event from the channel into rows and operations, within one transaction, without other I/O.

Events are deduplicated for ever: a known key changes nothing, so the parent may deliver an event any number
of times.
"""

from __future__ import annotations

from msgspec import Struct

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
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef
from codebutler.text.wording import one_line
from codebutler_worker.changes.card import STOPPED
from codebutler_worker.changes.pending import withdraw_checks
from codebutler_worker.changes.race import stop_race_checks
from codebutler_worker.commands.changes import NO_CHECKS, NO_COMMAND, resolve_checks
from codebutler_worker.commands.knowledge import expand_skill
from codebutler_worker.commands.logs import stop_transfers
from codebutler_worker.commands.pressing import BUTTONS, press
from codebutler_worker.commands.table import Invocation, is_valid_command, run_command
from codebutler_worker.conversation.approvals import is_polled
from codebutler_worker.conversation.clicks import click, edited_late
from codebutler_worker.conversation.deciding import decide_typed
from codebutler_worker.conversation.marks import QUEUED, end_message, set_mark
from codebutler_worker.conversation.messages import Incoming, enqueue, type_in
from codebutler_worker.conversation.parked import drop_parked
from codebutler_worker.conversation.queue import waiting_turn, withdraw_message, withdraw_turn
from codebutler_worker.present.notices import LATE_COMMAND
from codebutler_worker.runtime.turns import LIVE, Todo, agent_for, conversation_id
from codebutler_worker.skills import Library
from codebutler_worker.store.rows import InboxRow, MessageRow, message_id
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of

LOGGED_CHARS = 500
MISUNDERSTOOD = "!"
"""In a message's row, instead of an agent: a command that was not understood, so that an edit may correct it."""
SAY_WHAT = "Say what I should do, or `!help`."
OUR_ERROR = "❌ I could not handle that because of an internal error: see CodeButler's log, then ask again."


class EventInbox(Struct, frozen=True):
    """Takes the events of one repository's channel."""

    settings: RepoSettings
    skills: Library | None = None

    def take(self, uow: UnitOfWork, seq: int, event: Event, request: Request) -> Todo:
        """Accept the event; returns what is left to do after the commit."""
        if not uow.inbox.add(InboxRow(event.key, seq), known="keep"):
            return Todo()
        is_plain = isinstance(request, Prompt) and request.prefix is None
        if not is_plain:
            request = self._resolved(event, request)
        match event:
            case MessagePosted() if uow.inbox.get(MessageDeleted.key_of(event.channel, event.ref)):
                # The chat sends what was not acknowledged again, and does not know of the deletion then.
                return Todo()
            case MessagePosted():
                by_name = (
                    is_plain and self.settings.config.agent.mention == "mention" and event.origin == "chat"
                )
                return self._posted(uow, event, request, is_called=event.mentioned or not by_name)
            case SlashCommand():
                return self._slash(uow, event, request)
            case MessageEdited():
                return self._edited(uow, event, request)
            case MessageDeleted():
                return self._deleted(uow, event)
            case ButtonClicked() if event.action_id in BUTTONS:
                return press(uow, self.settings, event)
            case ButtonClicked():
                return click(uow, self.settings.config, event)

    def give_up(self, uow: UnitOfWork, seq: int, event: Event) -> None:
        """Accept an event that could not be handled, and say so."""
        uow.inbox.add(InboxRow(event.key, seq), known="keep")
        if isinstance(event, MessagePosted):
            self._decline(uow, event, OUR_ERROR)
        else:
            uow.post(ThreadPlace(f"{event.channel}:", None), OUR_ERROR)

    def stop_everything(self, uow: UnitOfWork) -> Todo:
        """Withdraw every queued turn; ask to stop every running one."""
        for turn in uow.turns.find(state="queued"):
            withdraw_turn(uow, turn)
        for turn in uow.turns.find(state="parked"):
            drop_parked(uow, turn)
        stop_transfers(uow)
        checks = withdraw_checks(uow, None, STOPPED) + stop_race_checks(uow, None)
        return Todo(stop=tuple(turn.id for turn in uow.turns.find(state=LIVE)), withdrawn=checks)

    def _posted(
        self, uow: UnitOfWork, event: MessagePosted, request: Request, *, is_called: bool = True
    ) -> Todo:
        """Plain talk that does not call us (``agent.mention``) counts if a card, a question or a program waits for it,
        and starts nothing new."""
        note, config = f'{event.user}: "{one_line(event.text, LOGGED_CHARS)}"', self.settings.config
        todo = Todo()
        match request:
            case Prompt(text=text, prefix=prefix) if is_called and not (
                text.strip() or event.files or (prefix is not None and is_session(config, prefix))
            ):
                self._decline(uow, event, SAY_WHAT)
            case Prompt():
                incoming = Incoming(
                    channel=event.channel,
                    ref=event.ref,
                    order=event.order,
                    root=event.thread or event.ref,
                    user=event.user,
                    text=request.text,
                    prefix=request.prefix,
                    late=event.late,
                    handled=event.handled != "no",
                    files=event.files,
                    job=event.job,
                )
                is_wanted = is_called or (not event.stale and is_polled(uow, config, event))
                answered: Todo | None = None
                # Only within a thread may a message answer a card or go to a session.
                if event.thread is not None:
                    answered = decide_typed(uow, config, event, request) or type_in(uow, config, incoming)
                if answered is None and not is_wanted:
                    return todo
                todo = answered or enqueue(uow, config, incoming, stale=event.stale)
            case Command() if event.stale:
                uow.post(ThreadPlace(f"{event.channel}:{event.root}", event.root), LATE_COMMAND)
            case Command() if request == NO_CHECKS:
                self._decline(uow, event, NO_COMMAND)
            case Command():
                todo = self._posted_command(uow, request, event)
        return todo.logged("MSG", note)

    def _decline(self, uow: UnitOfWork, event: MessagePosted, why: str) -> None:
        """No turn will follow: report to anybody who waits for an outcome, a script perhaps, that it was
        refused."""
        place = ThreadPlace(f"{event.channel}:{event.root}", event.root)
        end_message(uow, place, event.ref, "refused", after=uow.post(place, why))

    def _resolved(self, event: Event, request: Request) -> Request:
        """A command that asks an agent, as a prompt."""
        request = resolve_checks(request, self.settings)
        if self.skills is None:
            return request
        return expand_skill(request, event.user, self.settings, self.skills)

    def _slash(self, uow: UnitOfWork, event: SlashCommand, request: Request) -> Todo:
        note = f'{event.user}: "{event.command} {one_line(event.text, LOGGED_CHARS)}"'
        if isinstance(request, Command):
            return self._slash_command(uow, request, event).logged("MSG", note)
        if not isinstance(request, Prompt):
            return Todo().logged("MSG", note)
        incoming = Incoming(
            channel=event.channel,
            ref=NOWHERE,
            root=NOWHERE,
            user=event.user,
            text=request.text,
            prefix=request.prefix,
            conversation=f"{event.channel}:slash-{event.invocation}",
        )
        return enqueue(uow, self.settings.config, incoming).logged("MSG", note)

    def _posted_command(
        self, uow: UnitOfWork, command: Command, event: MessagePosted | MessageEdited
    ) -> Todo:
        """A command in a message, answered in its thread."""
        known = is_valid_command(command.name, command.argument)
        if not known:
            self._keep_misunderstood(uow, event)
        root = event.thread or event.ref
        conversation = self._conversation(event.channel, event.thread)
        place = ThreadPlace(conversation or f"{event.channel}:{root}", root)
        message = message_id(event.channel, event.ref)
        files = event.files if isinstance(event, MessagePosted) else ()
        invocation = Invocation(
            uow, self.settings, command, place, conversation, event.user, message, files=files
        )
        todo = run_command(invocation)
        if not todo.deferred:
            uow.ended(place, (event.ref,), "done" if known else "refused")
        return todo

    def _slash_command(self, uow: UnitOfWork, command: Command, event: SlashCommand) -> Todo:
        """A slash command has no message to answer: the reply goes to its author, or to the channel."""
        only_for = visible_only_to(event.user, command.name, command.argument)
        conversation = self._conversation(event.channel, None)
        place = ThreadPlace(conversation or f"{event.channel}:", None, only_for=only_for)
        return run_command(Invocation(uow, self.settings, command, place, conversation, event.user))

    def _conversation(self, channel: ConversationRef, thread: MessageRef | None) -> str | None:
        """The conversation it is about, None for the whole channel."""
        config = self.settings.config
        whole = config.agent.scope == "channel"
        return conversation_id(config, channel, thread or NOWHERE) if thread or whole else None

    def _keep_misunderstood(self, uow: UnitOfWork, event: MessagePosted | MessageEdited) -> None:
        if uow.messages.get(message_id(event.channel, event.ref)) is not None:
            uow.messages.update(message_id(event.channel, event.ref), agent=MISUNDERSTOOD)
            return
        row = MessageRow(
            id=message_id(event.channel, event.ref),
            from_id=event.user,
            channel_id=event.channel,
            content=event.text,
            timestamp=uow.stamp,
            acked=True,
            platform_msg_id=event.ref,
            order=event.order,
            thread=event.thread or event.ref,
            agent=MISUNDERSTOOD,
        )
        uow.messages.add(row)

    def _edited(self, uow: UnitOfWork, event: MessageEdited, request: Request) -> Todo:
        stored = uow.messages.get(message_id(event.channel, event.ref))
        if stored is None:
            return Todo()
        if not self._may_amend(event, stored):
            return Todo().logged("WRN", f"{event.user} edited a message of {stored.from_id}: ignored")
        found = waiting_turn(uow, event.channel, event.ref)
        if found is None:
            return self._mended(uow, event, request, stored)
        message, turn = found
        note = f'{event.user} edited: "{one_line(event.text, LOGGED_CHARS)}"'
        if isinstance(request, Prompt):
            if agent_for(uow, self.settings.config, turn.conversation, request.prefix) == turn.agent:
                uow.messages.update(message_id(event.channel, event.ref), content=request.text)
                return Todo().logged("MSG", note)
            withdraw_message(uow, message)
            incoming = Incoming(
                channel=event.channel,
                ref=event.ref,
                order=message.order,
                root=event.thread or event.ref,
                user=event.user,
                text=request.text,
                prefix=request.prefix,
            )
            return enqueue(uow, self.settings.config, incoming, counts=False).logged("MSG", note)
        withdraw_message(uow, message)
        set_mark(uow, place_of(turn), message, QUEUED, remove=True)
        if isinstance(request, Command):
            return self._posted_command(uow, request, event).logged("MSG", note)
        return Todo().logged("MSG", note)

    def _may_amend(self, event: MessageEdited | MessageDeleted, message: MessageRow) -> bool:
        """Words that run under a person's name must be that person's own."""
        where = Where(self.settings.config, event.channel, author=message.from_id)
        return may(admitted(event.user), "amend", where).allowed

    def _mended(self, uow: UnitOfWork, event: MessageEdited, request: Request, message: MessageRow) -> Todo:
        """A command that was not understood did nothing: its edit counts as a new message."""
        if message.turn_id is not None:
            return edited_late(uow, event, request, message)
        if message.agent != MISUNDERSTOOD:
            return Todo()
        uow.messages.update(message_id(event.channel, event.ref), agent=None)
        again = MessagePosted(
            channel=event.channel,
            ref=event.ref,
            sent_at=event.sent_at,
            order=message.order,
            is_direct=event.is_direct,
            user=event.user,
            text=event.text,
            thread=event.thread,
        )
        return self._posted(uow, again, request)

    def _deleted(self, uow: UnitOfWork, event: MessageDeleted) -> Todo:
        found = waiting_turn(uow, event.channel, event.ref)
        if found is None or not self._may_amend(event, found[0]):
            return Todo()
        withdraw_message(uow, found[0])
        return Todo().logged("MSG", f"{event.user} deleted a message that had not started")
