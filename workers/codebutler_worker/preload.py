"""Imported once, in the fork server: every worker shares these modules' memory instead of importing its own.

The one module that works at import. Collecting garbage is put off meanwhile, and what is there at the end is frozen:
the collector of each worker would otherwise write into the shared pages, which copies them.
"""

from __future__ import annotations

import gc

gc.disable()

import sqlalchemy.dialects.sqlite.pysqlite  # noqa: E402 - after the collector is off

from codebutler_worker.warmup import warm_up  # noqa: E402

__all__ = ["sqlalchemy"]

warm_up()
gc.freeze()
gc.enable()
