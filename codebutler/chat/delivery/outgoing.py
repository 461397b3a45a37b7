"""What the sender does to an operation before it leaves, where it leaves for, and what makes two operations related;
and an item for each that is to be sent or was lately, told done once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeVar

import msgspec

from codebutler.chat.delivery.planner import Line, WaitingCall
from codebutler.chat.port import Call
from codebutler.domain.errors import ChatError, ChatUnreachableError
from codebutler.domain.message import ApprovalCard, Message, QuestionCard, every_text, said
from codebutler.domain.model import Operation, Post, React, Update, Upload
from codebutler.text.markup import ANY_WORKSPACE, NAMED, PERSON, code, plain, with_real_links, words
from codebutler.text.redact import redacted_bytes

TOO_MUCH = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_blocks_too_many", "msg_too_long"}
)
NAME_CHARS = 120

SaidT = TypeVar("SaidT", Post, Upload)

AGAIN = "↻ Sent again: the first attempt may have arrived."
NOT_HERE = "🔒 This reply is for you alone, and this chat cannot show that. Ask me in a direct message."


def about(operation: Operation) -> str:
    """The message that the operation is about, or whose thread it goes to; "" if none."""
    match operation:
        case Post(thread_ts=ts) | Upload(thread_ts=ts):
            return ts or ""
        case Update(target_ts=ts) | React(target_ts=ts):
            return ts


def call_of(operation: Operation) -> Call:
    """What the chat counts it as."""
    match operation:
        case Post():
            return "whisper" if operation.only_for else "post"
        case Update():
            return "update"
        case React():
            return "unreact" if operation.remove else "react"
        case Upload():
            return "share"


def addressed(operation: Operation, allowed: Collection[str]) -> Operation:
    """The post with a call to the user it is for, if that is one of ``allowed``, and the edit with the mentions that
    stand for the names of such users (an edit calls nobody): nobody else can be pinged."""
    match operation:
        case Post(mention=user, message=message):
            called = user if user in allowed else ""
            message = msgspec.structs.replace(message, names=())
            return msgspec.structs.replace(operation, message=message, mention=called)
        case Update(message=message):
            names = tuple(user for user in message.names if user in allowed)
            message = msgspec.structs.replace(message, names=names)
            return msgspec.structs.replace(operation, message=message)
        case _:
            return operation


class Editor:
    """Has the last word on every text that leaves, in one pass: names of people, links, no secrets.

    ``called`` says what a user is called, ``relinked`` leads links to where messages stand; ``redact`` sees a text
    last.
    """

    def __init__(
        self,
        redact: Callable[[str], str],
        called: Callable[[str], str] = str,
        relinked: Callable[[str], str] = str,
    ) -> None:
        self.redact = redact
        self._called = called
        self._relinked = relinked

    def edited(self, operation: Operation, workspace_url: str = "") -> Operation:
        """The operation as it leaves. People are told of by name but where they may be mentioned; an agent's own
        Markdown keeps its words. Links to messages lead into the workspace at ``workspace_url``."""
        match operation:
            case Post(message=message) | Update(message=message):
                names = None if message.is_foreign else message.names
                text = partial(self._text, names=names, workspace_url=workspace_url)
                return msgspec.structs.replace(operation, message=every_text(message, text))
            case Upload():
                return msgspec.structs.replace(
                    operation,
                    filename=self.redact(operation.filename),
                    title=self.redact(operation.title),
                    comment=self.redact(operation.comment),
                    content=redacted_bytes(operation.content, self.redact),
                )
            case React():
                return operation

    def _text(self, text: str, *, names: Collection[str] | None, workspace_url: str) -> str:
        if names is not None and PERSON in text:
            text = NAMED.sub(
                lambda found: found[0] if found[1] in names else plain(self._called(found[1])), text
            )
        if ANY_WORKSPACE in text:
            text = self._relinked(with_real_links(text, workspace_url))
        text = self.redact(text)
        if "\\" in text:
            # Where a secret shows only once the marks are gone, the marks go.
            shown = words(text)
            if (clean := self.redact(shown)) != shown:
                return plain(clean)
        return text


def has_links(operation: Operation) -> bool:
    """Whether it links to messages."""
    return isinstance(operation, Post | Update) and ANY_WORKSPACE in str(operation.message)


def again_line(post: Post) -> Post:
    """What is said where a post may have been said before and nobody can tell: the post takes its place."""
    return msgspec.structs.replace(post, message=said(AGAIN))


def said_again(operation: SaidT) -> SaidT:
    """The operation with a first line that says that it may have been done before."""
    if isinstance(operation, Upload):
        return msgspec.structs.replace(operation, comment="\n".join(filter(None, (AGAIN, operation.comment))))
    return msgspec.structs.replace(operation, message=_with_first_line(operation.message, AGAIN))


def _with_first_line(message: Message, line: str) -> Message:
    match message.card:
        case ApprovalCard(requests=(first, *rest)):
            first = msgspec.structs.replace(first, texts=(line, *first.texts))
            return msgspec.structs.replace(message, card=ApprovalCard((first, *rest)))
        case QuestionCard(questions=(first, *rest)) as card:
            first = msgspec.structs.replace(first, text=f"{line}\n{first.text}")
            return msgspec.structs.replace(
                message, card=msgspec.structs.replace(card, questions=(first, *rest))
            )
        case _:
            return msgspec.structs.replace(message, markdown=f"{line}\n\n{message.markdown}")


def in_public(operation: Operation, *, is_direct: bool) -> Operation:
    """What a chat without private messages shows instead of what is for one person alone: where to ask for it. In a
    direct conversation nobody else is there."""
    if not isinstance(operation, Post) or not operation.only_for:
        return operation
    message = operation.message if is_direct else said(NOT_HERE)
    return msgspec.structs.replace(operation, message=message, only_for="")


def instead(operation: Operation, refusal: str) -> Operation | None:
    """What the chat will take after it refused the operation with that code: short text for a message that is too much,
    a line for a file; None if there is nothing."""
    if isinstance(operation, Upload):
        name = code(" ".join(operation.filename.split())[:NAME_CHARS])
        return Post(
            message=said(f"📎 {name} was not sent: the chat refused it ({refusal})."),
            thread_ts=operation.thread_ts,
        )
    if refusal not in TOO_MUCH or not isinstance(operation, Post | Update) or operation.message.is_short:
        return None
    message = msgspec.structs.replace(operation.message, is_short=True)
    return msgspec.structs.replace(operation, message=message)


class Detour(Protocol):
    """Knows which messages and files of a channel's repository stand in a direct conversation."""

    def where(self, channel: str, item: str) -> str:
        """The conversation in which ``item`` stands (a message's ts, a file's ID); else ``channel``."""

    async def posted(self, channel: str, place: str, ts: str) -> None:
        """Our message ``ts``, meant for ``channel``, stands in ``place``."""


REMEMBERED = 10_000

Key = tuple[str, str]


@dataclass(slots=True, eq=False, kw_only=True)
class Item(WaitingCall):
    """An operation on its way. ``submitted`` is as it came, ``operation`` as it leaves, once ``is_clean``; ``unsure``:
    it may have been done before, and ``can_look``: that can be found out. ``step``: what its call is for.

    ``file_id`` is an upload's, once there is one; ``place`` the ts of the message that is kept for a post, and becomes
    it.
    """

    op_id: str
    submitted: Operation
    operation: Operation
    result: asyncio.Future[str]
    unsure: bool
    can_look: bool
    step: Literal["send", "look", "keep a place"] = "send"
    failures: int = 0
    is_clean: bool = False
    is_simplified: bool = False
    is_noted: bool = False
    file_id: str = ""
    place: str = ""

    def now(self, operation: Operation | None = None, *, unsure: bool | None = None) -> None:
        """It is other than it was: so the call it waits for may be another.

        A post that may have been said before is looked for, or a place is kept for it. Done twice, an edit or a mark is
        the same; a file is known by its id; and what one person alone sees is not found again.
        """
        self.operation = now = self.operation if operation is None else operation
        self.unsure = self.unsure if unsure is None else unsure
        self.step, self.call = "send", "update" if self.place else call_of(now)
        if self.unsure and isinstance(now, Post) and not now.only_for and not self.place:
            if self.can_look:
                self.step, self.call = "look", "replies" if now.thread_ts else "history"
            else:
                self.step = "keep a place"

    @property
    def is_outdated(self) -> bool:
        """Whether nobody needs it any more."""
        return isinstance(self.operation, Post) and self.operation.outdated

    @property
    def is_repeat(self) -> bool:
        """Whether it has to say that it may have been done before, as nobody can tell whether it was."""
        is_whispered = isinstance(self.operation, Post) and self.operation.only_for
        return self.unsure and bool(is_whispered or not self.can_look)


@dataclass(frozen=True, slots=True)
class _Done:
    """``content`` tells edits and marks of one id apart; of a post or a file the id says it all."""

    result: str
    content: int


class Items:
    """Everything that is pending, and the results of the last REMEMBERED operations."""

    def __init__(self, *, can_look: bool) -> None:
        self.is_closed = False
        self._can_look = can_look
        self._pending: dict[Item, None] = {}
        self._by_id: dict[Key, Item] = {}
        self._done: OrderedDict[Key, _Done] = OrderedDict()
        self._changed = asyncio.Event()

    @property
    def pending(self) -> Collection[Item]:
        """What waits or is under way."""
        return self._pending.keys()

    async def changed(self) -> None:
        """Wait until one is pending no more."""
        self._changed.clear()
        await self._changed.wait()

    def known(self, channel: str, op_id: str, operation: Operation) -> str | Item | None:
        """The result of the same operation if it was done lately, or its item if it is under way. An edit or a mark of
        other content is another operation."""
        key, by_content = (channel, op_id), isinstance(operation, Update | React)
        done = self._done.get(key)
        if done is not None and (not by_content or done.content == hash(operation)):
            return done.result
        item = self._by_id.get(key)
        return None if item is not None and by_content and item.submitted != operation else item

    def add(self, channel: str, op_id: str, operation: Operation, *, unsure: bool, lasting: bool) -> Item:
        """A new item. Raises ChatUnreachableError once closed."""
        if self.is_closed:
            raise ChatUnreachableError("the sender is closed", "closed")
        item = Item(
            call=call_of(operation),
            channel=channel,
            line=_line(channel, operation, lasting=lasting),
            value=operation.value,
            is_lasting=lasting,
            op_id=op_id,
            submitted=operation,
            operation=operation,
            result=asyncio.get_running_loop().create_future(),
            unsure=unsure,
            can_look=self._can_look,
        )
        item.now()
        self._pending[item] = None
        self._by_id[channel, op_id] = item
        return item

    def settle(self, item: Item, outcome: str | ChatError) -> None:
        """It is done, or will never be."""
        key = item.channel, item.op_id
        self._pending.pop(item, None)
        if self._by_id.get(key) is item:
            del self._by_id[key]
        self._changed.set()
        if isinstance(outcome, str):
            content = hash(item.submitted) if isinstance(item.submitted, Update | React) else 0
            self._done[key] = _Done(outcome, content)
            self._done.move_to_end(key)
            if len(self._done) > REMEMBERED:
                self._done.popitem(last=False)
            if not item.result.done():
                item.result.set_result(outcome)
        elif not item.result.done():
            item.result.set_exception(outcome)
            item.result.exception()  # read, so that a caller who has gone leaves no warning behind

    def close(self) -> None:
        """Nothing more is known of what is pending."""
        self.is_closed = True
        for item in self._pending:
            item.result.cancel()


def _line(channel: str, operation: Operation, *, lasting: bool) -> Line:
    """What keeps its order: what is said in a conversation, the edits of a message, a mark on a message. Each waits
    for nothing else; what the supervisor says, not even for a worker in a closed channel."""
    match operation:
        case Update():
            return channel, "edit", operation.target_ts
        case React():
            return channel, "mark", operation.target_ts, operation.name
        case Post() | Upload():
            return channel, "say" if lasting else "notice", about(operation)
