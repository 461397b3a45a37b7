"""What the sender does to an operation before it leaves, and what makes two operations related. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec

from codebutler.chat.delivery.planner import Line
from codebutler.chat.port import Call
from codebutler.message import ApprovalCard, Message, QuestionCard, every_text, said
from codebutler.model import Operation, Post, React, Update, Upload
from codebutler.text.links import ANY_WORKSPACE, at_home
from codebutler.text.markup import NAMED, code, plain, words
from codebutler.text.redact import redacted_bytes

TOO_MUCH = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_blocks_too_many", "msg_too_long"}
)
NAME_CHARS = 120

SaidT = TypeVar("SaidT", Post, Upload)
AGAIN = "↻ Sent again: the first attempt may have arrived."
NOT_HERE = "🔒 This reply is for you alone, and this chat cannot show that. Ask me in a direct message."


def item_of(operation: Operation) -> str:
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


def line_of(channel: str, operation: Operation, *, lasting: bool) -> Line:
    """What keeps its order: what is said in a conversation, the edits of a message, a mark on a message. Each waits
    for nothing else; what the supervisor says, not even for a worker in a closed channel."""
    match operation:
        case Update(target_ts=ts):
            return channel, "edit", ts
        case React(target_ts=ts, name=name):
            return channel, "mark", ts, name
        case _:
            return channel, "say" if lasting else "notice", item_of(operation)


def content_of(operation: Operation) -> str:
    """What tells two operations of one id apart: nothing for a post or a file, whose id says it all."""
    if isinstance(operation, Post | Upload):
        return ""
    return hashlib.sha256(msgspec.json.encode(operation)).hexdigest()


def supersedes(newer: Operation) -> bool:
    """Whether it makes what waits in its line pointless: of edits and marks the last one counts."""
    return isinstance(newer, Update | React)


def redacted(operation: Operation, redact: Callable[[str], str]) -> Operation:
    """The operation with every text that people would see passed through ``redact``."""
    match operation:
        case Post() | Update():
            message = every_text(operation.message, lambda text: _without_secrets(text, redact))
            return msgspec.structs.replace(operation, message=message)
        case Upload():
            return msgspec.structs.replace(
                operation,
                filename=redact(operation.filename),
                title=redact(operation.title),
                comment=redact(operation.comment),
                content=redacted_bytes(operation.content, redact),
            )
        case React():
            return operation


def _without_secrets(text: str, redact: Callable[[str], str]) -> str:
    """Where a secret shows only once the marks are gone, the marks go."""
    text = redact(text)
    shown = words(text) if "\\" in text else text
    return text if redact(shown) == shown else plain(redact(shown))


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


def with_names(operation: Operation, called: Callable[[str], str]) -> Operation:
    """The operation with names where it tells of people whom it may not mention; an agent's own Markdown stays as it
    is."""
    if not isinstance(operation, Post | Update) or operation.message.is_foreign:
        return operation
    message = operation.message

    def name(found: re.Match[str]) -> str:
        return found[0] if found[1] in message.names else plain(called(found[1]))

    named = every_text(message, lambda text: NAMED.sub(name, text))
    return msgspec.structs.replace(operation, message=named)


def has_links(operation: Operation) -> bool:
    """Whether it links to messages."""
    return isinstance(operation, Post | Update) and ANY_WORKSPACE in str(operation)


def linked(operation: Operation, workspace_url: str, relinked: Callable[[str], str] = str) -> Operation:
    """The operation with its links to messages leading into our workspace, and ``relinked`` to where they stand."""
    if not isinstance(operation, Post | Update):
        return operation
    message = every_text(operation.message, lambda text: relinked(at_home(text, workspace_url)))
    return msgspec.structs.replace(operation, message=message)


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


def in_public(operation: Operation) -> Operation:
    """What a chat without private messages shows instead of what is for one person alone: where to ask for it."""
    if not isinstance(operation, Post) or not operation.only_for:
        return operation
    return msgspec.structs.replace(operation, message=said(NOT_HERE), only_for="")


def instead(operation: Operation, refusal: str) -> Operation | None:
    """What the chat will take after it refused the operation with that code: short text for a message that is too much,
    a line for a file; None if there is nothing."""
    if isinstance(operation, Upload):
        name = code(" ".join(operation.filename.split())[:NAME_CHARS])
        return Post(
            message=said(f"📎 {name} was not sent: Slack refused it ({refusal})."),
            thread_ts=operation.thread_ts,
        )
    if refusal not in TOO_MUCH or not isinstance(operation, Post | Update) or operation.message.is_short:
        return None
    message = msgspec.structs.replace(operation.message, is_short=True)
    return msgspec.structs.replace(operation, message=message)
