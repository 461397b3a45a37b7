"""Where a worker process begins. Runs in the fork server's child, before any of the worker's own code."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import signal
from multiprocessing.connection import Connection


def run(target: str, connection: Connection) -> None:
    """Call ``target`` ("package.module:function") with the worker's end of the pipe."""
    # A session of its own: Ctrl-C in the terminal is for the parent, which then asks the workers to stop.
    with contextlib.suppress(OSError):
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(all_threads=True)
    module, _, function = target.partition(":")
    getattr(importlib.import_module(module), function)(connection)
