"""Pending posts become messages instead of texts with Slack's blocks: their text as plain text, and their buttons.

Boxes to tick are lost: the person who was asked answers in their own words. Downgrading keeps only the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

outbox = sa.table(
    "outbox", sa.column("op_id", sa.Text), sa.column("kind", sa.Text), sa.column("payload", sa.Text)
)
_SPECIAL = re.compile(r"[\\`*_\[\]<&~|]|(?m:^)[#>+=-]")
_LINK = re.compile(r"<(https?://[^|<>]+)\|([^<>]*)>")


def upgrade() -> None:
    _rewrite(_message)


def downgrade() -> None:
    _rewrite(_blocks)


def _rewrite(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    connection = op.get_bind()
    rows = connection.execute(sa.select(outbox).where(outbox.c.kind.in_(("post", "update")))).all()
    for op_id, _, payload in rows:
        changed = json.dumps(change(json.loads(payload)), ensure_ascii=False)
        connection.execute(sa.update(outbox).where(outbox.c.op_id == op_id).values(payload=changed))


def _message(said: dict[str, Any]) -> dict[str, Any]:
    blocks = said.pop("blocks", [])
    own = "\n".join(block["text"] for block in blocks if block.get("type") == "markdown")
    rows = [block["elements"] for block in blocks if block.get("type") == "actions"]
    buttons = [
        {
            "label": element["text"]["text"],
            "action": element["action_id"],
            "value": element["value"],
            "style": element.get("style", ""),
        }
        for row in rows
        if not any(element.get("type") == "checkboxes" for element in row)
        for element in row
    ]
    message = {
        "markdown": own or _plain(said.pop("text", "")),
        "buttons": buttons,
        "names": said.pop("names", []),
        "is_foreign": bool(own),
    }
    said.pop("text", None)
    return {**said, "message": message}


def _plain(mrkdwn: str) -> str:
    """The text as people read it, with all marks escaped."""
    text = _LINK.sub(r"\2 (\1)", mrkdwn)
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", text)


def _blocks(said: dict[str, Any]) -> dict[str, Any]:
    text = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", said.pop("message")["markdown"])
    return {
        **said,
        "text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
        "blocks": [],
    }
