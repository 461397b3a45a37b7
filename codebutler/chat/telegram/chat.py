"""Telegram as a ChatPort: posts, edits, reactions and files."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Self, TypeVar

from msgspec.structs import replace

from codebutler.chat.port import Capabilities, Download, Identity, Take
from codebutler.chat.telegram.api import BotApi, download
from codebutler.chat.telegram.entities import FormattedText, sendable
from codebutler.chat.telegram.messages import MessageWriter, Private, Typing
from codebutler.chat.telegram.records import Buttons, KnownMessage, MessageRecords, kept, stored
from codebutler.chat.telegram.render import Mentions, Rendered, rendered
from codebutler.chat.telegram.rules import (
    REACTIONS,
    TELEGRAM_LIMITS,
    MovedError,
    era_of,
    marks_after,
    message_of,
    number_of,
    person_of,
)
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.message import Message, said
from codebutler.domain.model import Mark, Post, React, Update, Upload
from codebutler.domain.refs import NO_PERSON, NOWHERE, ConversationRef, MessageRef, PersonRef
from codebutler.intake.records import Notes
from codebutler.platform.tasks import BoundedDict

T = TypeVar("T")

MAX_UPLOAD_BYTES = 50 * 2**20
CAPTION_CHARS = 1000
BEGUN = 200
MARKED = 5000
OPEN_IT = "Only you may see this, and I cannot message you yet: open my profile and press Start."
QUIET = frozenset({"outcome", "progress", "sign"})

log = logging.getLogger("codebutler.chat.telegram")


class TelegramChat:
    """An async context manager: leaving it closes its connections. ``notes`` keep its records. ``redact`` sees rendered
    text."""

    def __init__(
        self,
        api: BotApi,
        notes: Notes,
        *,
        clock: Clock | None = None,
        redact: Callable[[str], str] = str,
        random: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        self.limits = TELEGRAM_LIMITS
        self.clock = clock or SystemClock()
        self.api = api
        self.records = MessageRecords(notes)
        self.buttons = Buttons(notes, self.clock, random)
        self._messages = MessageWriter(self.api, self.records)
        self.private = Private(self._messages, self.records, self.buttons, notes, self._cleaned)
        self.capabilities = Capabilities(ephemeral=self, status_line=self, home=self.private)
        self._typing = Typing(api, self.clock)
        self._marks: BoundedDict[tuple[int, int], tuple[Mark, ...]] = BoundedDict(MARKED)
        self._marking = asyncio.Lock()
        self._redact = redact
        self._begun: BoundedDict[tuple[ConversationRef, str, int], list[int]] = BoundedDict(BEGUN)
        """Posts in several parts of which some are sent: the next attempt continues after them."""

    async def __aenter__(self) -> Self:
        await self.api.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._typing.close()
        await self.api.__aexit__()

    def use_token(self, token: str) -> bool:
        """Switch to another token; False if it is the same. Raises ChatAuthError at once for an invalid one."""
        return self.api.use_token(token)

    async def identity(self) -> Identity:
        """Bot API: getMe. ``team`` is our own name, as Telegram has no workspaces."""
        me = await self.api.call("getMe")
        me = me if isinstance(me, Mapping) else {}
        number, name = me.get("id"), me.get("username")
        if not isinstance(number, int):
            raise ChatError("Telegram does not say who we are", "invalid_answer")
        user = person_of(number)
        return Identity(user_id=user, bot_id=user, team_id="telegram", team=str(name or ""))

    async def post(self, channel: ConversationRef, post: Post, op_id: str) -> MessageRef:
        """Bot API: sendMessage, once for each part. The ref is the first part's."""
        shown = self._rendered(post.message, post.mention)
        silent = post.value in QUIET or bool(post.message.summary)
        return await self._reaching(channel, partial(self._post, channel, post, op_id, shown, silent))

    async def update(self, channel: ConversationRef, update: Update, op_id: str) -> None:  # noqa: ARG002 - may be repeated
        """Bot API: editMessageText; what no longer fits is sent as further messages."""
        chat, number = self._place(channel, update.target)
        shown = self._rendered(update.message)
        with stored():
            known = await self.records.known(chat, number)
            numbers = [number, *known.parts]
            last = numbers[len(shown.parts) - 1] if len(shown.parts) <= len(numbers) else 0
            keyboard = await self.buttons.keyboard(chat, update.target, shown.keys, last)
            place = await self._messages.place(chat, self._thread(chat, channel, known.thread))
        await self._messages.fill(
            place, numbers, shown.parts, keyboard, partial(self._parts, chat, known.thread)
        )
        await kept(self.buttons.stands(chat, update.target, update.target, numbers[len(shown.parts) - 1]))

    async def react(self, channel: ConversationRef, react: React) -> None:
        """Bot API: setMessageReaction, which replaces our previous reaction."""
        place = self._place(channel, react.target)
        async with self._marking:
            before = self._marks.get(place, ())
            after = marks_after(before, react.mark, remove=react.remove)
            if after is None:
                return
            present, reaction = (REACTIONS[marks[-1]] if marks else "" for marks in (before, after))
            if reaction != present:
                await self._mark(place, reaction)
            self._marks[place] = after

    async def upload(self, upload: Upload) -> str:
        """Does nothing: ``share`` uploads and posts a file in one call. Raises ChatError too_large."""
        if len(upload.content) > MAX_UPLOAD_BYTES:
            raise ChatError("Telegram accepts files of up to 50 MB", "too_large")
        return upload.filename or "file"

    async def share(self, channel: ConversationRef, upload: Upload, file_id: str) -> None:  # noqa: ARG002 - it has no name yet
        """Bot API: sendDocument; photos would be recompressed."""
        await self._reaching(channel, partial(self._share, channel, upload))

    async def fetch(self, channel: ConversationRef, file_id: str, take: Take) -> Download:
        """Bot API: getFile, up to 20 MB. Files that are not in ``channel`` are unknown."""
        ref, _, at = file_id.rpartition("-")
        try:
            chat, number = self._place(channel, MessageRef(ref))
            files = (await self.records.known(chat, number)).files
        except (ChatError, StoreError):
            raise ChatError(code="file_not_found") from None
        if not at.isdecimal() or int(at) >= len(files):
            raise ChatError(code="file_not_found")
        found = files[int(at)]
        await download(self.api, self.clock, found, take)
        return Download(file=replace(found, id=file_id))

    async def whisper(self, channel: ConversationRef, post: Post) -> MessageRef:
        """In the private chat with them. Users who have never opened it are asked to, in the group."""
        shown = self._rendered(post.message)
        try:
            return self.records.ref(number_of(post.only_for), await self.private.tell(post.only_for, shown))
        except ChatError as error:
            if error.code not in ("not_in_channel", "channel_not_found"):
                raise
        return await self.post(channel, replace(post, only_for="", message=said(OPEN_IT)), "")

    async def show_status(self, channel: ConversationRef, thread: MessageRef, text: str) -> None:
        """Bot API: sendChatAction. Telegram shows that something is being done, but not what."""
        chat = self.records.chat(number_of(channel))
        with stored():
            place = await self._messages.place(chat, self._thread(chat, channel, thread))
        if not text:
            self._typing.over(place)
            return
        try:
            await self._typing.show(place)
        except MovedError:
            log.debug("%s has another number now; the next post will find it out", channel)

    async def _post(
        self, channel: ConversationRef, post: Post, op_id: str, shown: Rendered, silent: bool
    ) -> MessageRef:
        chat = self.records.chat(number_of(channel))
        begun = channel, op_id, hash(tuple(part.text for part in shown.parts))
        numbers = self._begun.get(begun, [])
        root = self._thread(chat, channel, post.thread or NOWHERE)
        with stored():
            keyboard = await self.buttons.keyboard(chat, op_id, shown.keys)
            place = await self._messages.place(chat, root, silent=silent)
        if not numbers:
            only = len(shown.parts) == 1
            numbers = [await self._messages.send(place, shown.parts[0], keyboard if only else None)]
            await self._parts(chat, post.thread or NOWHERE, numbers)
        if post.value == "answer":
            self._typing.over(place)
        if len(shown.parts) > 1:
            self._begun[begun] = numbers
            keep = partial(self._parts, chat, post.thread or NOWHERE)
            await self._messages.fill(place, numbers, shown.parts, keyboard, keep, done=1)
            del self._begun[begun]
        ref = self.records.ref(chat, numbers[0])
        await kept(self.buttons.stands(chat, op_id, ref, numbers[-1]))
        return ref

    async def _share(self, channel: ConversationRef, upload: Upload) -> None:
        chat = self.records.chat(number_of(channel))
        with stored():
            place = await self._messages.place(chat, self._thread(chat, channel, upload.thread or NOWHERE))
        title = upload.title if upload.title != upload.filename else ""
        caption = sendable(self._redact("\n".join(filter(None, (upload.comment, title))))).replace(
            "@", "@\u2060"
        )
        number = await self._messages.send_file(
            place, upload.filename or "file", upload.content, caption[:CAPTION_CHARS]
        )
        await self._parts(chat, upload.thread or NOWHERE, [number])

    async def _parts(self, chat: int, thread: MessageRef, numbers: list[int]) -> None:
        """Record which messages belong together and their thread. If the disk refuses, the record lasts for this
        process."""
        first, *others = numbers
        ref = self.records.ref(chat, first)

        def begins(known: KnownMessage) -> KnownMessage:
            return replace(known, thread=thread, is_ours=True, parts=tuple(others))

        def goes_on(known: KnownMessage) -> KnownMessage:
            return replace(known, thread=thread or ref, is_ours=True, part_of=first)

        await kept(self.records.keep(chat, first, begins))
        for number in others:
            self.records.ref(chat, number)
            await kept(self.records.keep(chat, number, goes_on))

    async def _mark(self, place: tuple[int, int], reaction: str) -> None:
        chat, number = place
        try:
            await self.api.call(
                "setMessageReaction",
                chat_id=chat,
                message_id=number,
                reaction=[{"type": "emoji", "emoji": reaction}] if reaction else [],
            )
        except ChatError as error:
            # A group may allow fewer reactions, or none.
            if error.code != "invalid_reaction":
                raise

    async def _reaching(self, channel: ConversationRef, call: Callable[[], Awaitable[T]]) -> T:
        """If a group has a new ID, try once more with that: nothing was sent."""
        try:
            return await call()
        except MovedError as moved:
            new = moved.chat
        await kept(self.records.moved(number_of(channel), new))
        return await call()

    def _rendered(self, message: Message, mention: PersonRef = NO_PERSON) -> Rendered:
        return self._cleaned(rendered(message, mention, Mentions(message.names, self.records.called)))

    def _cleaned(self, shown: Rendered) -> Rendered:
        """If a secret shows only once the formatting is gone, remove the formatting."""
        texts = [self._redact(part.text) for part in shown.parts]
        parts = (
            part if part.text == text else FormattedText(text)
            for part, text in zip(shown.parts, texts, strict=True)
        )
        return Rendered(tuple(parts), shown.keys)

    def _place(self, channel: ConversationRef, ref: MessageRef) -> tuple[int, int]:
        """Which message a ref names. Raises ChatError; messages from before a group's ID changed cannot be
        reached."""
        chat = number_of(channel)
        now = self.records.chat(chat)
        if now != chat and not era_of(ref):
            raise ChatError(f"{ref} is of the time before {channel} became a supergroup", "message_not_found")
        return now, message_of(ref)

    def _thread(self, chat: int, channel: ConversationRef, thread: MessageRef) -> int:
        """The first message of a conversation, 0 if it cannot be replied to."""
        try:
            is_out_of_reach = chat != number_of(channel) and not era_of(thread)
            return 0 if is_out_of_reach else message_of(thread)
        except ChatError:
            return 0
