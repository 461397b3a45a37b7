"""Renames the fields for messages in events and in channels' records: neutral names instead of Slack's ``ts``."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

COLUMNS = {"ts": "ref", "root_ts": "root"}
KEYS = {
    "ts": "ref",
    "thread_ts": "thread",
    "seen_ts": "seen",
    "edited_ts": "edit",
    "message_ts": "message",
    "action_ts": "press",
    "trigger_id": "invocation",
}
CLIPS = (('"subtype":"slack_audio"', '"is_voice":true'), ('"subtype": "slack_audio"', '"is_voice": true'))
TIMERS = ('"thread_ts":', '"thread":')
"""No text in JSON contains such quotes: they would be escaped."""


def upgrade() -> None:
    for old, new in COLUMNS.items():
        op.execute(f"ALTER TABLE recent RENAME COLUMN {old} TO {new}")
    for old, new in KEYS.items():
        _rename_key(old, new)
    for old, new in CLIPS:
        _rename_in_events(old, new)
    _rename_in_timers(*TIMERS)


def downgrade() -> None:
    for old, new in COLUMNS.items():
        op.execute(f"ALTER TABLE recent RENAME COLUMN {new} TO {old}")
    for old, new in KEYS.items():
        _rename_key(new, old)
    for old, new in CLIPS:
        _rename_in_events(new, old)
    _rename_in_timers(*reversed(TIMERS))


def _rename_key(old: str, new: str) -> None:
    op.execute(
        f"UPDATE entries SET event = json_remove(json_set(event, '$.{new}', json_extract(event, '$.{old}')), "  # noqa: S608 - constants
        f"'$.{old}') WHERE CASE WHEN json_valid(event) THEN json_type(event, '$.{old}') END IS NOT NULL"
    )


def _rename_in_events(old: str, new: str) -> None:
    _replace("UPDATE entries SET event = replace(event, :old, :new) WHERE event IS NOT NULL", old, new)


def _rename_in_timers(old: str, new: str) -> None:
    _replace("UPDATE notes SET value = replace(value, :old, :new) WHERE name = 'schedule'", old, new)


def _replace(statement: str, old: str, new: str) -> None:
    # As values: in a statement's own text, `:true` would be a parameter.
    op.execute(sa.text(statement).bindparams(old=old, new=new))
