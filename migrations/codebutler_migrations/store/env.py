"""Alembic's entry for the store's chain. Alembic runs this module anew for each command."""

from __future__ import annotations

from typing import Any

from alembic import context


def is_described(name: str | None, kind: str, _parents: Any) -> bool:
    """Whether ``tables`` describe it: neither the full-text index nor the tables that SQLite keeps for it."""
    return kind != "table" or name is None or name.partition("_")[0] != "search"


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=context.config.attributes.get("tables"),
    transactional_ddl=True,
    compare_server_default=True,
    include_name=is_described,
)
with context.begin_transaction():
    context.run_migrations()
