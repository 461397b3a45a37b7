"""Imported once, in the fork server: every worker shares these modules' memory instead of importing its own.

The one module that works at import. Garbage collection is off meanwhile, and everything left at the end is
frozen: each worker's collector would otherwise write into the shared pages, which copies them.

Python's cache of attribute look-ups counts a reference for each name in it, so a worker that replaces one
writes into two shared pages. It is emptied, and filled by a second rehearsal with the look-ups of workers.

Last of all the objects become immortal, if Python can do that: then using one writes nothing (a third less memory).
"""

from __future__ import annotations

import gc
import sys

gc.disable()

from codebutler_worker.warmup import make_immortal, warm_up  # noqa: E402 - after the collector is off

warm_up()
if clear := getattr(sys, "_clear_type_cache", None):  # internal to CPython: it may be removed
    clear()
warm_up()
make_immortal()
gc.freeze()
gc.enable()
