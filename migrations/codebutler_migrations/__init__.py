"""Revisions of the store and of the journal, with Alembic. They know no tables of today."""
