"""The operation id in a message's metadata: how a message of ours is recognised when its answer was lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codebutler.chat.port import Own, OwnPage, Page

EVENT_TYPE = "codebutler_operation"


def operation_metadata(op_id: str) -> dict[str, Any]:
    """Slack: message metadata, readable by every app in the workspace, so it holds the id and no more."""
    return {"event_type": EVENT_TYPE, "event_payload": {"op_id": op_id}}


def op_id_of(message: Mapping[str, Any]) -> str | None:
    """The operation that made ``message``, if one of ours did and says so."""
    metadata = message.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("event_type") != EVENT_TYPE:
        return None
    payload = metadata.get("event_payload")
    op_id = payload.get("op_id") if isinstance(payload, Mapping) else None
    return op_id if isinstance(op_id, str) else None


def own_in(page: Page, bot_id: str) -> OwnPage:
    """The messages on the page that ``bot_id`` wrote."""
    found = [
        Own(ts=ts, op_id=op_id_of(message) or "", is_file=bool(message.get("files")))
        for message in page.messages
        if message.get("bot_id") == bot_id and isinstance(ts := message.get("ts"), str)
    ]
    return OwnPage(messages=tuple(found), next_cursor=page.next_cursor)
