"""Where a worker process begins. Runs in the fork server's child, before any of the worker's own code."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
from multiprocessing.connection import Connection

from codebutler.platform.descriptors import lower_to
from codebutler.platform.signals import ignore_interrupts


def run(target: str, connection: Connection, printing: Connection, files: int | None) -> None:
    """Call ``target`` ("package.module:function") with the worker's end of the pipe.

    ``files`` is its soft limit of open files, None = as it is. ``printing`` becomes stdout and stderr: what is printed
    belongs in the parent's log, not on its terminal.
    """
    os.dup2(printing.fileno(), 1)
    os.dup2(printing.fileno(), 2)
    printing.close()
    # A session of its own: Ctrl-C in the terminal is for the parent, which then asks the workers to stop.
    with contextlib.suppress(OSError):
        os.setsid()
    ignore_interrupts()
    if files is not None:
        lower_to(files)
    faulthandler.enable(all_threads=True)
    module, _, function = target.partition(":")
    getattr(importlib.import_module(module), function)(connection)
