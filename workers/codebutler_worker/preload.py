"""Imported once, in the fork server: every worker shares these modules' memory instead of importing its own.

The one module that works at import: freezing what is there now keeps the garbage collector of each child from
writing into the shared pages, which would copy them.
"""

from __future__ import annotations

import gc

import sqlalchemy.dialects.sqlite.pysqlite

import codebutler_worker.bootstrap

__all__ = ["codebutler_worker", "sqlalchemy"]

gc.collect()
gc.freeze()
