"""What the sender does to an operation before it leaves, and what makes two operations related. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import msgspec

from codebutler.chat.delivery.planner import Line
from codebutler.chat.port import Call
from codebutler.model import Operation, Post, React, Update, Upload
from codebutler.text.escape import ZERO_WIDTH_SPACE, escape, neutralise
from codebutler.text.links import ANY_WORKSPACE, at_home
from codebutler.text.redact import redacted_bytes

# Slack: chat.update refuses a text above 4,000 characters; chat.postMessage takes more, but 4,000 reads best.
PLAIN_LIMIT = 3_900
TOO_MUCH = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_blocks_too_many", "msg_too_long"}
)
NAME_CHARS = 120
MAX_DEPTH = 40
SECTION_CHARS = 3000
_TOLD = re.compile(f"<{ZERO_WIDTH_SPACE}@([UW][A-Z0-9]{{1,30}})>")
_USER = re.compile(r"[UW][A-Z0-9]{1,30}")
BLOCKS = frozenset({"markdown", "section", "actions", "context", "divider", "header"})
"""The kinds of blocks that workers use; Slack finds a mention in their texts only."""


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
            blocks = tuple(every_text(block, redact) for block in operation.blocks)
            return msgspec.structs.replace(operation, text=redact(operation.text), blocks=blocks)
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


def harmless(operation: Operation) -> Operation:
    """What a worker may say: no mention in it reaches anybody, whatever the worker has (not) escaped.

    A block of a kind that workers do not use could hold a mention that is no text: it is left out.
    """
    match operation:
        case Post() | Update():
            blocks = tuple(
                every_text(block, neutralise) for block in operation.blocks if block.get("type") in BLOCKS
            )
            return msgspec.structs.replace(operation, text=neutralise(operation.text), blocks=blocks)
        case Upload():
            return msgspec.structs.replace(
                operation, title=neutralise(operation.title), comment=neutralise(operation.comment)
            )
        case React():
            return operation


def addressed(operation: Operation, allowed: Collection[str]) -> Operation:
    """The post with a call to the user it is for, if that is one of ``allowed``: nobody else can be pinged."""
    if not isinstance(operation, Post) or not operation.mention:
        return operation
    post = msgspec.structs.replace(operation, mention="")
    if operation.mention not in allowed or not _USER.fullmatch(operation.mention):
        return post
    call = f"<@{operation.mention}>"
    return msgspec.structs.replace(post, text=f"{call} {post.text}", blocks=_calling(call, post.blocks))


def _calling(call: str, blocks: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """The blocks with the call at their top; in a section of its own where the first is not one of mrkdwn with room for
    it: whether a mention in a Markdown block reaches anybody, Slack does not say."""
    if not blocks:
        return ()
    first, *rest = blocks
    text = first.get("text") if first.get("type") == "section" else None
    if isinstance(text, dict) and text.get("type") == "mrkdwn":
        shown = f"{call} {text.get('text', '')}"
        if len(shown) <= SECTION_CHARS:
            return ({**first, "text": {**text, "text": shown}}, *rest)
    return ({"type": "section", "text": {"type": "mrkdwn", "text": call}}, *blocks)


def named(operation: Operation, allowed: Collection[str]) -> Operation:
    """The edit with the mentions that stand for names, of users who are ``allowed``: an edit calls nobody."""
    if not isinstance(operation, Update) or not operation.names:
        return operation
    users = [user for user in operation.names if user in allowed and _USER.fullmatch(user)]
    put = partial(_mentioning, users=users)
    blocks = tuple(every_text(block, put) for block in operation.blocks)
    return msgspec.structs.replace(operation, text=put(operation.text), blocks=blocks, names=())


def _mentioning(text: str, users: Collection[str]) -> str:
    for user in users:
        text = text.replace(f"<{ZERO_WIDTH_SPACE}@{user}>", f"<@{user}>")
    return text


def with_names(operation: Operation, called: Callable[[str], str]) -> Operation:
    """The operation with names where it tells of people by mentions that reach nobody; an agent's own Markdown stays as
    it is."""
    if not isinstance(operation, Post | Update):
        return operation

    def name(text: str) -> str:
        return _TOLD.sub(lambda found: escape(neutralise(called(found[1]))), text)

    blocks = tuple(
        block if block.get("type") == "markdown" else every_text(block, name) for block in operation.blocks
    )
    return msgspec.structs.replace(operation, text=name(operation.text), blocks=blocks)


def has_links(operation: Operation) -> bool:
    """Whether it links to messages."""
    return isinstance(operation, Post | Update) and ANY_WORKSPACE in str(operation)


def linked(operation: Operation, workspace_url: str, relinked: Callable[[str], str] = str) -> Operation:
    """The operation with its links to messages leading into our workspace, and ``relinked`` to where they stand."""
    if not isinstance(operation, Post | Update):
        return operation

    for put in (partial(at_home, workspace_url=workspace_url), relinked):
        blocks = tuple(every_text(block, put) for block in operation.blocks)
        operation = msgspec.structs.replace(operation, text=put(operation.text), blocks=blocks)
    return operation


def instead(operation: Operation, code: str) -> Operation | None:
    """What Slack will take after it refused the operation with ``code``: short plain text for a message that is too
    much, a line for a file; None if there is nothing."""
    if isinstance(operation, Upload):
        name = escape(neutralise(" ".join(operation.filename.replace("`", "'").split())[:NAME_CHARS]))
        line = f"📎 `{name}` was not sent: Slack refused it ({code})."
        return Post(text=line, thread_ts=operation.thread_ts)
    if code not in TOO_MUCH or not isinstance(operation, Post | Update):
        return None
    text = operation.text or "(this message cannot be shown)"
    if len(text) > PLAIN_LIMIT:
        text = f"{text[:PLAIN_LIMIT]}\n… (shortened)"
    simple = msgspec.structs.replace(operation, text=text, blocks=())
    return None if simple == operation else simple


def every_text(block: dict[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    """The block with every text in it passed through ``redact``."""
    return {str(key): _redact_value(value, redact, MAX_DEPTH) for key, value in block.items()}


def _redact_value(value: Any, redact: Callable[[str], str], depth: int) -> Any:
    if isinstance(value, str):
        return redact(value)
    if depth == 0:
        # Block Kit is nowhere near this deep; what lies deeper has not been looked at, so it does not leave.
        return None
    if isinstance(value, dict):
        return {str(key): _redact_value(inner, redact, depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_value(inner, redact, depth - 1) for inner in value]
    return value
