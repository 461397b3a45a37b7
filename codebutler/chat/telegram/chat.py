"""Telegram as a ChatPort: posts, edits, reactions and files; and "is typing", which ends after five seconds, so it is
repeated while work goes on."""

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
from codebutler.chat.telegram.entities import FormattedText, without_unsendable
from codebutler.chat.telegram.messages import Destination, MessageWriter, PrivateMessages
from codebutler.chat.telegram.records import Buttons, MessageRecords, retryable, try_save
from codebutler.chat.telegram.render import Mentions, Rendered, render_message
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
from codebutler.platform.tasks import BoundedDict, Tasks

T = TypeVar("T")
MAX_UPLOAD_BYTES = 50 * 2**20
CAPTION_CHARS = 1000
PARTIAL_POSTS = 200
MARKS_REMEMBERED = 5000
ASK_TO_START = "Only you may see this, and I cannot message you yet: open my profile and press Start."
SILENT_VALUES = frozenset({"outcome", "progress", "sign"})
TYPING_S = 4.5
MAX_TYPING_S = 120.0
"""How long after the last update typing stops: the worker that sent it may have died."""

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
        self.private = PrivateMessages(
            self._messages, self.records, self.buttons, notes, self._redact_rendered
        )
        self.capabilities = Capabilities(ephemeral=self, status_line=self, home=self.private)
        self._typing = Typing(api, self.clock)
        self._marks: BoundedDict[tuple[int, int], tuple[Mark, ...]] = BoundedDict(MARKS_REMEMBERED)
        self._reaction_lock = asyncio.Lock()
        self._redact = redact
        self._partial_posts: BoundedDict[tuple[ConversationRef, str, int], list[int]] = BoundedDict(
            PARTIAL_POSTS
        )
        """Posts in several parts of which some are sent: the next attempt continues after them."""

    async def __aenter__(self) -> Self:
        await self.api.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._typing.close()
        await self.api.__aexit__()

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
        rendered = self._render(post.message, post.mention)
        silent = post.value in SILENT_VALUES or bool(post.message.summary)
        send = partial(self._post, channel, post, op_id, rendered, silent)
        return await self._retry_if_moved(channel, send)

    async def update(self, channel: ConversationRef, update: Update, op_id: str) -> None:  # noqa: ARG002 - may be repeated
        """Bot API: editMessageText; what no longer fits is sent as further messages."""
        chat, number = self._chat_and_number(channel, update.target)
        rendered = self._render(update.message)
        with retryable():
            known = await self.records.get(chat, number)
            numbers = [number, *known.parts]
            last = numbers[len(rendered.parts) - 1] if len(rendered.parts) <= len(numbers) else 0
            keyboard = await self.buttons.keyboard(chat, update.target, rendered.button_rows, last)
            place = await self._messages.place(chat, self._root_number(chat, channel, known.thread))
        await self._messages.fill(
            place, numbers, rendered.parts, keyboard, partial(self._save_parts, chat, known.thread)
        )
        await try_save(
            self.buttons.move_to(chat, update.target, update.target, numbers[len(rendered.parts) - 1])
        )

    async def react(self, channel: ConversationRef, react: React) -> None:
        """Bot API: setMessageReaction, which replaces our previous reaction."""
        place = self._chat_and_number(channel, react.target)
        async with self._reaction_lock:
            before = self._marks.get(place, ())
            after = marks_after(before, react.mark, remove=react.remove)
            if after is None:
                return
            present, reaction = (REACTIONS[marks[-1]] if marks else "" for marks in (before, after))
            if reaction != present:
                await self._set_reaction(place, reaction)
            self._marks[place] = after

    async def upload(self, upload: Upload) -> str:
        """Does nothing: ``share`` uploads and posts a file in one call. Raises ChatError too_large."""
        if len(upload.content) > MAX_UPLOAD_BYTES:
            raise ChatError("Telegram accepts files of up to 50 MB", "too_large")
        return upload.filename or "file"

    async def share(self, channel: ConversationRef, upload: Upload, file_id: str) -> None:  # noqa: ARG002 - it has no name yet
        """Bot API: sendDocument; photos would be recompressed."""
        await self._retry_if_moved(channel, partial(self._share, channel, upload))

    async def fetch(self, channel: ConversationRef, file_id: str, take: Take) -> Download:
        """Bot API: getFile, up to 20 MB. Files that are not in ``channel`` are unknown."""
        ref, _, at = file_id.rpartition("-")
        try:
            chat, number = self._chat_and_number(channel, MessageRef(ref))
            files = (await self.records.get(chat, number)).files
        except (ChatError, StoreError):
            raise ChatError(code="file_not_found") from None
        if not at.isdecimal() or int(at) >= len(files):
            raise ChatError(code="file_not_found")
        file = files[int(at)]
        await download(self.api, self.clock, file, take)
        return Download(file=replace(file, id=file_id))

    async def whisper(self, channel: ConversationRef, post: Post) -> MessageRef:
        """In the private chat with them. Users who have never opened it are asked to, in the group."""
        rendered = self._render(post.message)
        try:
            number = await self.private.send(post.only_for, rendered)
            return self.records.ref(number_of(post.only_for), number)
        except ChatError as error:
            if error.code not in ("not_in_channel", "channel_not_found"):
                raise
        return await self.post(channel, replace(post, only_for="", message=said(ASK_TO_START)), "")

    async def show_status(self, channel: ConversationRef, thread: MessageRef, text: str) -> None:
        """Bot API: sendChatAction. Telegram shows that something is being done, but not what."""
        chat = self.records.chat(number_of(channel))
        with retryable():
            place = await self._messages.place(chat, self._root_number(chat, channel, thread))
        if not text:
            self._typing.hide(place)
            return
        try:
            await self._typing.show(place)
        except MovedError:
            log.debug("%s has another number now; the next post will find it out", channel)

    async def _post(
        self, channel: ConversationRef, post: Post, op_id: str, rendered: Rendered, silent: bool
    ) -> MessageRef:
        chat = self.records.chat(number_of(channel))
        post_key = channel, op_id, hash(tuple(part.text for part in rendered.parts))
        numbers = self._partial_posts.get(post_key, [])
        root = self._root_number(chat, channel, post.thread or NOWHERE)
        # The buttons of a home decide elsewhere: no operation may have its name.
        owner = f"operation {op_id}"
        with retryable():
            keyboard = await self.buttons.keyboard(chat, owner, rendered.button_rows)
            place = await self._messages.place(chat, root, silent=silent)
        if not numbers:
            only = len(rendered.parts) == 1
            numbers = [await self._messages.send(place, rendered.parts[0], keyboard if only else None)]
            await self._save_parts(chat, post.thread or NOWHERE, numbers)
        if post.value == "answer":
            self._typing.hide(place)
        if len(rendered.parts) > 1:
            self._partial_posts[post_key] = numbers
            keep = partial(self._save_parts, chat, post.thread or NOWHERE)
            await self._messages.fill(place, numbers, rendered.parts, keyboard, keep, already_shown=1)
            del self._partial_posts[post_key]
        ref = self.records.ref(chat, numbers[0])
        await try_save(self.buttons.move_to(chat, owner, ref, numbers[-1]))
        return ref

    async def _share(self, channel: ConversationRef, upload: Upload) -> None:
        chat = self.records.chat(number_of(channel))
        with retryable():
            root = self._root_number(chat, channel, upload.thread or NOWHERE)
            place = await self._messages.place(chat, root)
        title = upload.title if upload.title != upload.filename else ""
        caption = without_unsendable(self._redact("\n".join(filter(None, (upload.comment, title))))).replace(
            "@", "@\u2060"
        )
        number = await self._messages.send_file(
            place, upload.filename or "file", upload.content, caption[:CAPTION_CHARS]
        )
        await self._save_parts(chat, upload.thread or NOWHERE, [number])

    async def _save_parts(self, chat: int, thread: MessageRef, numbers: list[int]) -> None:
        """Record which messages belong together and their thread. If the disk refuses, the record lasts for this
        process."""
        first, *others = numbers
        ref = self.records.ref(chat, first)
        parts = {"thread": thread, "is_ours": True, "parts": tuple(others)}
        await try_save(self.records.update(chat, first, lambda known: replace(known, **parts)))
        part = {"thread": thread or ref, "is_ours": True, "part_of": first}
        for number in others:
            self.records.ref(chat, number)
            await try_save(self.records.update(chat, number, lambda known: replace(known, **part)))

    async def _set_reaction(self, place: tuple[int, int], reaction: str) -> None:
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

    async def _retry_if_moved(self, channel: ConversationRef, call: Callable[[], Awaitable[T]]) -> T:
        """If a group has a new ID, try once more with that: nothing was sent."""
        try:
            return await call()
        except MovedError as moved:
            new = moved.chat
        await try_save(self.records.record_move(number_of(channel), new))
        return await call()

    def _render(self, message: Message, mention: PersonRef = NO_PERSON) -> Rendered:
        people = Mentions(message.names, self.records.name_of)
        return self._redact_rendered(render_message(message, mention, people))

    def _redact_rendered(self, rendered: Rendered) -> Rendered:
        """If a secret shows only once the formatting is gone, remove the formatting."""
        texts = [self._redact(part.text) for part in rendered.parts]
        parts = (
            part if part.text == text else FormattedText(text)
            for part, text in zip(rendered.parts, texts, strict=True)
        )
        return Rendered(tuple(parts), rendered.button_rows)

    def _chat_and_number(self, channel: ConversationRef, ref: MessageRef) -> tuple[int, int]:
        """Which message a ref names. Raises ChatError; messages from before a group's ID changed cannot be
        reached."""
        chat = number_of(channel)
        now = self.records.chat(chat)
        if now != chat and not era_of(ref):
            raise ChatError(f"{ref} is of the time before {channel} became a supergroup", "message_not_found")
        return now, message_of(ref)

    def _root_number(self, chat: int, channel: ConversationRef, thread: MessageRef) -> int:
        """The first message of a conversation, 0 if it cannot be replied to."""
        try:
            is_out_of_reach = chat != number_of(channel) and not era_of(thread)
            return 0 if is_out_of_reach else message_of(thread)
        except ChatError:
            return 0


class Typing:
    """Shows "is typing" in chats; ``close`` it when done."""

    def __init__(self, api: BotApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._until_s: dict[tuple[int, int], float] = {}
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))

    async def show(self, place: Destination) -> None:
        """Show activity in the chat. Raises ChatError."""
        where = place.chat, place.topic
        is_shown = where in self._until_s
        self._until_s[where] = self._clock.monotonic() + MAX_TYPING_S
        if not is_shown:
            try:
                await self._send_typing(where)
            except BaseException:  # cancelled, too: nothing was shown that has to be repeated
                del self._until_s[where]
                raise
            self._tasks.start(self._repeat(where), name=f"typing in {place.chat}")

    def hide(self, place: Destination) -> None:
        """Nothing is being done there any more, or the chat shows the result."""
        self._until_s.pop((place.chat, place.topic), None)

    async def close(self) -> None:
        """Stop at once."""
        await self._tasks.close(0)

    async def _repeat(self, where: tuple[int, int]) -> None:
        try:
            while True:
                await self._clock.sleep(TYPING_S)
                if self._clock.monotonic() >= self._until_s.get(where, 0.0):
                    return
                await self._send_typing(where)
        except ChatError as error:
            log.debug("%s", error)
        finally:
            self._until_s.pop(where, None)

    async def _send_typing(self, where: tuple[int, int]) -> None:
        chat, topic = where
        await self._api.call("sendChatAction", chat_id=chat, action="typing", message_thread_id=topic or None)
