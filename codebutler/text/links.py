"""Links to messages of the chat. Pure.

A worker does not know the workspace's address: it writes the one that any workspace answers to, and the parent puts
the right one in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable

ANY_WORKSPACE = "https://slack.com/archives/"
_TELEGRAM = re.compile(
    r"(?:\[(?P<label>[^\[\]]*)\]\()?https://slack\.com/archives/tg:(?P<chat>-?\d+)(?:/p\d0*(?P<message>\d+))?(?(label)\))"
)
_MESSAGE = re.compile(r"/archives/([CG][A-Z0-9]+)/p(\d{10})(\d{6})")


def message_url(channel: str, ts: str) -> str:
    """A message's address, in whatever workspace."""
    return f"{ANY_WORKSPACE}{channel}/p{ts.replace('.', '')}"


def message_link(channel: str, ts: str, label: str) -> str:
    """A message as a link; ``label`` is Markdown already."""
    return f"[{label}]({message_url(channel, ts)})"


def at_home(text: str, workspace_url: str) -> str:
    """The text with every link to a message leading into the workspace at ``workspace_url`` (auth.test's ``url``), or
    into its Telegram chat. Where that gives its messages no address, the label alone is left."""
    text = _TELEGRAM.sub(_in_telegram, text)
    return text.replace(ANY_WORKSPACE, f"{workspace_url.rstrip('/')}/archives/") if workspace_url else text


def _in_telegram(found: re.Match[str]) -> str:
    """Only a supergroup's messages have an address."""
    label, chat, message = found["label"], found["chat"], found["message"]
    if not chat.startswith("-100"):
        return label or ""
    address = f"https://t.me/c/{chat.removeprefix('-100')}/{message or 1}"
    return address if label is None else f"[{label}]({address})"


def relinked(text: str, where: Callable[[str, str], str]) -> str:
    """The text with its links to messages leading to where they stand: ``where`` tells it of a channel and a ts."""

    def moved(found: re.Match[str]) -> str:
        return found[0].replace(found[1], where(found[1], f"{found[2]}.{found[3]}"))

    return _MESSAGE.sub(moved, text)
