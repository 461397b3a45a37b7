"""Pending marks are stored by their meaning, instead of Slack's name for the emoji."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

MARKS = {
    "hourglass_flowing_sand": "queued",
    "eyes": "working",
    "raised_hand": "waiting",
    "white_check_mark": "done",
    "x": "failed",
    "octagonal_sign": "stopped",
}


def upgrade() -> None:
    for name, mark in MARKS.items():
        _rename(("name", name), ("mark", mark))


def downgrade() -> None:
    for name, mark in MARKS.items():
        _rename(("mark", mark), ("name", name))


def _rename(old: tuple[str, str], new: tuple[str, str]) -> None:
    # The operations of marks that come and go are named after them.
    (old_key, old_mark), (new_key, new_mark) = old, new
    op.get_bind().exec_driver_sql(
        "UPDATE outbox SET payload = json_remove(json_set(payload, ?, ?), ?), op_id = replace(op_id, ?, ?)"
        " WHERE kind = 'react' AND CASE WHEN json_valid(payload) THEN json_extract(payload, ?) END = ?",
        (
            f"$.{new_key}",
            new_mark,
            f"$.{old_key}",
            f":{old_mark}:",
            f":{new_mark}:",
            f"$.{old_key}",
            old_mark,
        ),
    )
