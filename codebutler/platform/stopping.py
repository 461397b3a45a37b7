"""One run's milestones: ready, asked to stop, insisted upon. Signal handlers only set; the loop acts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def pass_over_interrupts() -> None:
    """Let SIGINT do nothing to this process.

    By a handler, and not by ignoring it: a program that we execute would ignore it, too (execve(2)), and Ctrl-C
    would end nothing that an agent starts.
    """
    signal.signal(signal.SIGINT, _nothing)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    return


class Stopping:
    """``ready``: everything is up. ``asked``: finish what runs. ``insisted``: end now."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.asked = asyncio.Event()
        self.insisted = asyncio.Event()

    def ask(self) -> None:
        """Once: stop in order. Again: at once."""
        if self.asked.is_set():
            self.insisted.set()
        self.asked.set()

    @contextmanager
    def on_signals(self) -> Iterator[Stopping]:
        """SIGTERM and SIGINT ask while the context lives."""
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self.ask)
        try:
            yield self
        finally:
            for each in SIGNALS:
                loop.remove_signal_handler(each)
