"""What the sender does to an operation before it leaves, and where it sends it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

import msgspec

from codebutler.chat.port import Call
from codebutler.config.chats import message_url
from codebutler.domain.message import ApprovalCard, Message, QuestionCard, said
from codebutler.domain.model import Operation, Post, React, Update, Upload
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef, PersonRef
from codebutler.text.markup import MESSAGE, NAMED, PAGES, PERSON, code, linked, plain, with_pages, words
from codebutler.text.redact import every_text, redacted_bytes

TOO_MUCH = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_blocks_too_many", "msg_too_long"}
)
NAME_CHARS = 120

PostOrUpload = TypeVar("PostOrUpload", Post, Upload)

AGAIN = "↻ Sent again: the first attempt may have arrived."
NOT_HERE = (
    "🔒 Only you may see this reply, and this chat cannot hide it from others. Ask me in a direct message."
)


def route(operation: Operation) -> tuple[Call, MessageRef]:
    """The kind of call that the chat counts it as, and the message that it is about, or its thread ("" for none)."""
    match operation:
        case Post(thread=ref):
            return "whisper" if operation.only_for else "post", ref or NOWHERE
        case Update(target=ref):
            return "update", ref
        case React(target=ref):
            return "unreact" if operation.remove else "react", ref
        case Upload(thread=ref):
            return "share", ref or NOWHERE


def addressed(operation: Operation, allowed: Collection[PersonRef]) -> Operation:
    """The post with a mention of its recipient, if that is one of ``allowed``, or the edit with mentions instead of
    such users' names (an edit pings nobody): nobody else can be pinged."""
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


def _nowhere(_: str) -> str:
    return ""


class Editor:
    """The last step for every text that leaves, in one pass: names of people, links, no secrets.

    ``called`` gives a user's name; ``where`` the channel in which a message really is; ``pages`` the dashboard's URL
    for readers of the workspace at a URL ("" = they cannot open it); ``redact`` sees a text last.
    """

    def __init__(
        self,
        redact: Callable[[str], str],
        called: Callable[[PersonRef], str] = str,
        where: Callable[[ConversationRef, str], ConversationRef] = lambda channel, _: channel,
        pages: Callable[[str], str] = _nowhere,
    ) -> None:
        self.redact = redact
        self._pages = pages
        self._called = called
        self._where = where

    def edited(self, operation: Operation, workspace_url: str = "") -> Operation:
        """The operation as sent. People are named, and mentioned only where allowed; an agent's own Markdown keeps
        its wording. Links to messages lead into the workspace at ``workspace_url``."""
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

    def _text(self, text: str, *, names: Collection[PersonRef] | None, workspace_url: str) -> str:
        if names is not None and PERSON in text:
            text = NAMED.sub(
                lambda found: found[0] if found[1] in names else plain(self._called(PersonRef(found[1]))),
                text,
            )
        if names is not None and MESSAGE in text:
            text = linked(
                text, lambda channel, ref: message_url(self._where(channel, ref), ref, workspace_url)
            )
        if PAGES in text:
            text = with_pages(text, self._pages(workspace_url))
        text = self.redact(text)
        if "\\" in text:
            # If a secret shows only once the formatting is gone, remove the formatting.
            shown = words(text)
            if (clean := self.redact(shown)) != shown:
                return plain(clean)
        return text


def placeholder(post: Post) -> Post:
    """The text of a placeholder, where a post may have been sent before and nobody can tell: the post replaces it."""
    return msgspec.structs.replace(post, message=said(AGAIN))


def marked_as_repeat(operation: PostOrUpload) -> PostOrUpload:
    """The operation with a first line that says it may be a repeat."""
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
    """What a chat without private messages shows instead of a message for one person: where to ask for it. In a
    direct conversation nobody else is there."""
    if not isinstance(operation, Post) or not operation.only_for:
        return operation
    message = operation.message if is_direct else said(NOT_HERE)
    return msgspec.structs.replace(operation, message=message, only_for="")


def instead(operation: Operation, refusal: str) -> Operation | None:
    """What to send instead after the chat refused the operation with that code: short text for a message it does not
    accept, a line for a file; None if there is nothing."""
    if isinstance(operation, Upload):
        name = code(" ".join(operation.filename.split())[:NAME_CHARS])
        return Post(
            message=said(f"📎 {name} was not sent: the chat refused it ({refusal})."),
            thread=operation.thread,
        )
    if refusal not in TOO_MUCH or not isinstance(operation, Post | Update) or operation.message.is_short:
        return None
    message = msgspec.structs.replace(operation.message, is_short=True)
    return msgspec.structs.replace(operation, message=message)
