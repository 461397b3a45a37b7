"""Telegram for the supervisor: its API and its home, and the connection, which polls for updates and confirms each once
it is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from codebutler.chat.absence_notice import AbsenceNotice, ToldChannels
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.payload import Ignored, PayloadError
from codebutler.chat.people import Person
from codebutler.chat.platform import ConnectedChat, Host, Opening, PersonalPages
from codebutler.chat.port import ChannelMoved, Identity, identified
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.chat import TelegramChat
from codebutler.chat.telegram.inbox import IncomingEvents
from codebutler.chat.telegram.places import UnknownGroup, UnknownGroups
from codebutler.chat.telegram.polling import AUTH_RETRY_S, BatchResult, Poller, PollStatus
from codebutler.chat.telegram.presses import PressHandler
from codebutler.chat.telegram.rules import check_token, number_of
from codebutler.chat.telegram.updates import (
    BotIdentity,
    ButtonPressed,
    GroupMoved,
    InboxOpened,
    Membership,
    StartCommand,
    Update,
    WrittenUpdate,
    continues,
    may_continue,
    menu,
    parse,
)
from codebutler.config.chats import TelegramSection
from codebutler.config.schema import Config
from codebutler.domain.errors import ChatAuthError, ChatError, CodeButlerError, ProtocolError, StoreError
from codebutler.domain.refs import PersonRef
from codebutler.intake.intake import Intake
from codebutler.platform.tasks import Observers, Tasks, beside

ALBUM_S = 1.0
"""The files of an album arrive one by one, and so do the parts of a text that was split."""
RETRY_S = 2.0
ATTEMPTS = 3
"""How often an update whose handling fails may be retried before it is dropped: the next ones wait for it."""
FLUSH_S = 2.0

Notice = Membership | UnknownGroup | StartCommand | InboxOpened
"""Notices, which need not be stored."""

log = logging.getLogger("codebutler.chat.telegram")


class TelegramConnection:
    """Receives the bot's updates. ``run`` until ``stop``. ``connected`` is set once Telegram has answered the first
    poll.

    ``on_notice`` gets chats that we were added to or removed from, groups without a repository in which
    somebody writes, codes with which somebody opened the private chat, and people who ask for their home.
    """

    def __init__(
        self,
        chat: TelegramChat,
        sender: Sender,
        intake: Intake,
        on_notice: Callable[[Notice], None],
        rng: Random,
        absence_notice: AbsenceNotice,
    ) -> None:
        self._chat = chat
        self._intake = intake
        self._on_notice = on_notice
        self._sender = sender
        self._rng = rng
        self._absence_notice = absence_notice
        self._inbox = IncomingEvents(chat.records)
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self._presses = PressHandler(chat, sender, self._inbox, intake, self._tasks)
        self._poller = Poller(chat.api, self._handle_batch, chat.clock, rng, self._on_poll_status)
        self._me = BotIdentity(0)
        self._ignored = 0
        self._unreadable = 0
        self._albums: set[tuple[int, str]] = set()
        self._failing: tuple[int, int] = (0, 0)
        self._trouble = ""
        self._is_disconnected = False
        self._identifying: asyncio.Task[None] | None = None
        self.connected = asyncio.Event()

    @property
    def status(self) -> PollStatus:
        """The current state."""
        now = self._poller.status
        return replace(
            now, trouble=now.trouble or self._trouble, ignored=self._ignored, unreadable=self._unreadable
        )

    async def run(self) -> None:
        """Find out our identity, then receive. Raises ChatAuthError if Telegram refuses the token at the
        start."""
        self._on_disconnect()
        try:
            await self._identify()
            self._tasks.start(self._register_commands(), name="telegram commands")
            async with beside(self._absence_notice.run(), name="absence notice"):
                await self._poller.run()
        finally:
            await self._tasks.close(FLUSH_S)

    async def stop(self) -> None:
        """Take no more updates; finish those being committed."""
        await self._poller.stop()

    def look_again(self) -> None:
        """An update that could not be stored may succeed now: do not wait."""
        self._poller.nudge()

    def use_token(self, token: str) -> None:
        """Continue with another token. Raises ChatAuthError at once for an invalid one."""
        if self._chat.api.use_token(token):
            # The token may belong to another bot. Until we know its name, no update is taken: a command or a
            # mention may be ours.
            self._me = BotIdentity(0)
            if self._identifying is not None:
                self._identifying.cancel()
            self._identifying = self._tasks.start(self._identify_again(), name="telegram identity")
            self._poller.nudge()

    async def _identify(self) -> None:
        identity = await identified(
            self._fetch_identity, self._chat.clock, self._rng, self._on_identity_error
        )
        self._me = BotIdentity(number_of(identity.user_id), identity.team)
        self._trouble = ""

    async def _identify_again(self) -> None:
        """Find out our new identity; a token that is refused may be accepted later."""
        while not self._me.id:
            try:
                await self._identify()
            except ChatAuthError as error:
                self._on_identity_error(error)
                await self._chat.clock.sleep(AUTH_RETRY_S)
        self._poller.nudge()

    async def _fetch_identity(self) -> Identity:
        await self._chat.records.open()
        return await self._chat.identity()

    def _on_identity_error(self, error: CodeButlerError) -> None:
        if str(error) != self._trouble:
            log.warning("no answer from Telegram: %s; trying again", error)
        self._trouble = str(error)

    async def _register_commands(self) -> None:
        try:
            await self._chat.api.call("setMyCommands", commands=menu())
        except ChatError as error:
            log.warning("cannot register the commands: %s", error)

    async def _handle_batch(self, updates: Sequence[Mapping[str, Any]], waited: bool) -> BatchResult:
        """Each is on disk, or not for us, before the next is handled."""
        if updates and not self._me.id:
            return BatchResult(None, RETRY_S)
        batch = [
            (number, self._parse(update))
            for update in updates
            if isinstance(number := update.get("update_id"), int)
        ]
        at = 0
        while at < len(batch):
            number, update = batch[at]
            album = _album_at(batch, at)
            if self._is_incomplete(album, len(batch) - at):
                return BatchResult(number, ALBUM_S)
            try:
                await self._handle(update, album, missed=waited)
            except StoreError as error:
                log.warning("telegram: could not store an event, will fetch it again: %s", error)
                return BatchResult(number, RETRY_S)
            except Exception:  # one update must not block all others for ever
                log.exception("telegram: could not handle an update")
                if self._count_attempt(number) < ATTEMPTS:
                    return BatchResult(number, RETRY_S)
            at += max(1, len(album))
        return BatchResult(batch[-1][0] + 1 if batch else None)

    def _parse(self, update: Mapping[str, Any]) -> Update:
        try:
            found = parse(update, self._me)
        except (PayloadError, ProtocolError) as error:
            self._unreadable += 1
            log.warning("dropped an unreadable update: %s", error)
            return Ignored("unreadable")
        if isinstance(found, Ignored):
            self._ignored += 1
            log.debug("ignored: %s", found.reason)
        return found

    def _is_incomplete(self, album: Sequence[WrittenUpdate], remaining: int) -> bool:
        """Whether an album or a split text ends with the updates received so far: its rest is waited for once."""
        if not album or len(album) < remaining or not may_continue(album[-1]):
            return False
        key = album[0].spot.chat, album[0].album or str(album[0].spot.message)
        if key in self._albums:
            return False
        self._albums = {key}
        return True

    def _count_attempt(self, number: int) -> int:
        before, count = self._failing
        self._failing = number, count + 1 if before == number else 1
        return self._failing[1]

    async def _handle(self, update: Update, album: Sequence[WrittenUpdate], *, missed: bool) -> None:
        match update:
            case WrittenUpdate(edited_at=0.0):
                await self._on_message(album or [update], missed=missed)
            case WrittenUpdate():
                if (edit := await self._inbox.edit_event(update)) is not None:
                    await self._intake.accept(edit, missed=missed)
                    self._inbox.remember_text(update)
            case ButtonPressed():
                await self._presses.handle(update)
            case StartCommand(code=""):
                await self._intake.accept(self._inbox.start_event(update), missed=missed)
            case _:
                await self._handle_service_update(update)

    async def _handle_service_update(self, update: Update) -> None:
        match update:
            case StartCommand():
                self._on_notice(update)
            case InboxOpened(user):
                await self._chat.private.reopen(user)
                self._on_notice(update)
            case GroupMoved(old, new):
                if await self._chat.records.record_move(old, new):
                    log.info("the group %s became the supergroup %s; it keeps its name here", old, new)
            case Membership():
                self._on_notice(update)

    async def _on_message(self, album: Sequence[WrittenUpdate], *, missed: bool) -> None:
        first = album[0]
        if (click := await self._inbox.reason_event(first)) is not None:
            if await self._intake.accept(click, missed=missed) == "accepted":
                self._presses.delete_prompt(first.spot.chat, first.spot.reply_to)
            return
        event = await self._inbox.message_event(album)
        if await self._intake.accept(event, missed=missed) == "accepted":
            await self._inbox.save_topic_title(first, event)
        elif not event.is_direct and not self._intake.serves(event):
            self._on_notice(UnknownGroup(event))

    def _on_poll_status(self, status: PollStatus) -> None:
        log.info("telegram %s", status.state.replace("_", " "))
        if status.state == "connected":
            self.connected.set()
            if self._is_disconnected:
                self._is_disconnected = False
                self._absence_notice.back()
        elif status.trouble:
            self._on_disconnect()

    def _on_disconnect(self) -> None:
        if not self._is_disconnected:
            self._is_disconnected = True
            self._absence_notice.lost()


def _album_at(batch: Sequence[tuple[int, Update]], at: int) -> list[WrittenUpdate]:
    """What was sent together, from ``at`` on: an album, or a text that was split; none if it is neither."""
    found: list[WrittenUpdate] = []
    for _, update in batch[at:]:
        if not isinstance(update, WrittenUpdate) or update.edited_at:
            break
        if not (continues(update, found) if found else may_continue(update)):
            break
        found.append(update)
    return found


class TelegramIntegration:
    """Telegram before it is connected; ``chat`` is an async context manager."""

    def __init__(self, opening: Opening) -> None:
        telegram = opening.config.telegram
        self._allowed = telegram.allowed_ids
        self.chat = TelegramChat(
            BotApi(telegram.bot_token, telegram.api_base_url),
            opening.notes,
            clock=opening.clock,
            redact=opening.redact,
        )

    @staticmethod
    def check(config: Config) -> None:
        """Raises ChatAuthError for a missing token, or one of the wrong kind."""
        check_token(config.telegram.bot_token)

    async def person(self, user: PersonRef) -> Person:
        """Who has that ID, of those who have written to the bot. Raises ChatError."""
        found = await self.chat.api.call("getChat", chat_id=number_of(user))
        name = " ".join(str(found[part]) for part in ("first_name", "last_name") if found.get(part))
        return Person(id=user, names=(name,) if name else ())

    def connect(self, host: Host) -> ConnectedChat:
        """Build everything that brings events and handles them. It opens no conversations: Telegram lets no
        bot start one."""
        sender, rng = host.sender, Random()  # noqa: S311 - back-off
        absence_notice = AbsenceNotice(
            sender,
            host.journal,
            host.clock,
            ToldChannels(lambda: tuple(host.listened()), host.asking),
            host.is_starting,
            host.notes,
        )
        host.interrupted.add(absence_notice.interrupted)
        notices = Observers[Notice]()
        connection = TelegramConnection(self.chat, sender, host.intake, notices.tell, rng, absence_notice)
        pages = host.pages(connection)
        groups = UnknownGroups(
            self.chat,
            sender,
            is_registered=lambda channel: channel in host.registered(),
            is_allowed=lambda user: user in self._allowed or user in host.people(),
            tasks=host.tasks,
        )
        notices.add(partial(self._handle_notice, pages, groups, sender))

        def use_tokens(config: Config) -> None:
            self._allowed = config.telegram.allowed_ids
            connection.use_token(config.telegram.bot_token)

        return ConnectedChat(
            section=TelegramSection,
            connection=connection,
            check=self.check,
            use_tokens=use_tokens,
            work=pages.run,
        )

    def _handle_notice(
        self, pages: PersonalPages, groups: UnknownGroups, sender: Sender, notice: Notice
    ) -> None:
        match notice:
            case InboxOpened(user=user):
                pages.opened(user)
            case Membership(chat, is_in):
                channel = self.chat.records.channel(chat)
                sender.channels.moved(ChannelMoved(channel, "back" if is_in else "left"))
                groups.on_membership(notice)
            case UnknownGroup(event):
                groups.on_message(event)
            case StartCommand():
                pass  # a code is what `codebutler setup` waits for
