"""Alembic's entry for the journal's chain. Alembic runs this module anew for each command."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], target_metadata=None, transactional_ddl=True
)
with context.begin_transaction():
    context.run_migrations()
