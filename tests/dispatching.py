"""A dispatcher whose steps pass everything on, unless a test gives others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from codebutler.domain.clock import Clock
from codebutler.intake.dispatcher import Dispatcher, GoOn, Steps
from codebutler.intake.records import Entry
from tests.clock import ManualClock


def pass_on(entry: Entry, go_on: GoOn) -> None:
    go_on(entry)


def dispatcher(deliver: Callable[[Entry], None], clock: Clock | None = None, **given: Any) -> Dispatcher:
    parts: dict[str, Any] = {
        "direct_message": pass_on,
        "parent_command": pass_on,
        "keep": lambda _acts: None,
        "on_trouble": lambda _entry, _error: None,
        "followed": (),
        "notify": lambda _event: None,
    }
    return Dispatcher(Steps(deliver=deliver, **{**parts, **given}), clock or ManualClock())


def unused() -> Dispatcher:
    """For a test in which no event comes."""
    return dispatcher(lambda _entry: None)
