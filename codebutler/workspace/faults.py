"""Fault injection: what the next calls of a method meet instead of an answer. Pure.

``kind``: ``rate_limit`` (429 with Retry-After), ``status`` (that HTTP status), ``error`` (ok:false with that
code), ``delay`` (answers ``delay_s`` late), ``reset`` (connection dropped, nothing done), ``lost`` (done,
then the connection dropped), ``hang`` (done, never answered). ``method`` may be ``*`` for every method;
``files.upload`` and ``files.download`` name the two file transfers.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from msgspec import Struct

Kind = Literal["rate_limit", "status", "error", "delay", "reset", "lost", "hang"]


class Fault(Struct, kw_only=True, forbid_unknown_fields=True):
    """One scripted fault for the next ``times`` calls of ``method``; with ``only_app`` of the app under test, not of
    the people who write to it."""

    method: str
    kind: Kind
    times: int = 1
    retry_after_s: int = 1
    status: int = 500
    error: str = "internal_error"
    delay_s: float = 1.0
    only_app: bool = False


class Faults:
    """The faults still to happen, in the order they were ordered, each method by itself."""

    def __init__(self) -> None:
        self._queue: deque[Fault] = deque()

    def add(self, fault: Fault) -> None:
        """Order a fault; one for no calls at all (``times`` 0 or less) is dropped."""
        if fault.times > 0:
            self._queue.append(fault)

    def take(self, method: str, *, by_app: bool = True) -> Fault | None:
        """The fault this call meets, counted as met."""
        for fault in self._queue:
            if fault.method in (method, "*") and (by_app or not fault.only_app):
                fault.times -= 1
                if fault.times == 0:
                    self._queue.remove(fault)
                return fault
        return None

    def pending(self) -> tuple[Fault, ...]:
        """What has not happened yet, the oldest order first; ``times`` says for how many calls more."""
        return tuple(self._queue)

    def clear(self) -> None:
        """Take back what has not happened yet."""
        self._queue.clear()
