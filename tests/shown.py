"""What is said as Slack shows it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from codebutler.chat.slack.render import rendered
from codebutler.config.chats import message_url
from codebutler.domain.message import Message
from codebutler.domain.model import Post, Update
from codebutler.text.markup import linked, people_in
from codebutler.text.redact import every_text


def text_of(said: Post | Update | Message) -> str:
    """The text, in mrkdwn, with everybody it names."""
    message = said if isinstance(said, Message) else said.message
    message = every_text(message, lambda text: linked(text, message_url))
    message = replace(message, names=(*message.names, *people_in(message.markdown)))
    return rendered(message)[0]


def blocks_of(said: Post | Update | Message) -> tuple[dict[str, Any], ...]:
    """The blocks."""
    return tuple(rendered(said if isinstance(said, Message) else said.message)[1])
