"""Events as Slack's adapter makes them: what a ref and a channel tell stands beside them."""

from __future__ import annotations

from typing import Any

from codebutler.chat.slack.answers import DIRECT
from codebutler.domain.model import ButtonClicked, MessageDeleted, MessageEdited, MessagePosted, SlashCommand


def written(channel: str, ts: str) -> dict[str, Any]:
    """What Slack's adapter reads from a channel and a ts."""
    return {"channel": channel, "sent_at": float(ts), "order": ts, "is_direct": channel.startswith(DIRECT)}


def posted(*, channel: str, ref: str, **rest: Any) -> MessagePosted:
    """Somebody wrote."""
    return MessagePosted(**{**written(channel, ref), "ref": ref, **rest})


def edited(*, channel: str, edit: str, **rest: Any) -> MessageEdited:
    """Somebody changed what they wrote."""
    return MessageEdited(**written(channel, edit), edit=edit, **rest)


def deleted(*, channel: str, ref: str, **rest: Any) -> MessageDeleted:
    """Somebody took back what they wrote."""
    return MessageDeleted(**written(channel, ref), ref=ref, **rest)


def clicked(*, channel: str, **rest: Any) -> ButtonClicked:
    """Somebody pressed a button."""
    return ButtonClicked(channel=channel, is_direct=channel.startswith(DIRECT), **rest)


def slashed(*, channel: str, **rest: Any) -> SlashCommand:
    """Somebody typed a slash command."""
    return SlashCommand(channel=channel, is_direct=channel.startswith(DIRECT), **rest)


def numbered(number: int, sent_at: float, *, channel: str = "-100123", **rest: Any) -> MessagePosted:
    """Somebody wrote on a platform that numbers messages and conversations: as text 10 sorts before 9."""
    facts = {"ref": str(number), "order": f"{number:016}", "sent_at": sent_at, "is_direct": False}
    return MessagePosted(**{"channel": channel, "user": "111", "text": f"message {number}", **facts, **rest})
