"""What the sender does to an operation before it leaves, where it leaves for, and what makes two operations related.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from codebutler.chat.port import Call
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


class NoDetour:
    """Everything stays in its channel."""

    def where(self, channel: str, item: str) -> str:  # noqa: ARG002 - no item stands elsewhere
        """``channel`` itself."""
        return channel

    async def posted(self, channel: str, place: str, ts: str) -> None:
        """Nothing to remember."""
