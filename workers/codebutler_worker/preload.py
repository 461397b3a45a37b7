"""Imported once, in the fork server: every worker shares these modules' memory instead of importing its own.

The one module that works at import. Collecting garbage is put off meanwhile, and what is there at the end is frozen:
the collector of each worker would otherwise write into the shared pages, which copies them.

Python's cache of attribute look-ups counts a reference for each name in it, so that a worker which replaces one
writes into two shared pages. Emptied, and filled by a second rehearsal, it holds what workers look up.
"""

from __future__ import annotations

import gc
import sys

gc.disable()

import sqlalchemy.dialects.sqlite.pysqlite  # noqa: E402 - after the collector is off

from codebutler_worker.warmup import warm_up  # noqa: E402

__all__ = ["sqlalchemy"]

warm_up()
if clear := getattr(sys, "_clear_type_cache", None):  # CPython's own affair: it may go
    clear()
warm_up()
gc.freeze()
gc.enable()
