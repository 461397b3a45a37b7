"""A command in its context, and what every command of the parent works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from codebutler.domain.clock import Clock
from codebutler.intake.intake import Repo
from codebutler.parent.apphome.view import RepoCard
from codebutler.schedule.desk import Asker, ScheduleDesk


@dataclass(frozen=True, slots=True)
class Resources:
    """What handlers may use. ``since``: when this supervisor began."""

    schedule: ScheduleDesk
    clock: Clock
    since: datetime


@dataclass(frozen=True, slots=True)
class Asked:
    """``argument`` is one that the command takes; ``asker`` says who asks, and from where."""

    resources: Resources
    argument: str
    asker: Asker


Handler = Callable[[Asked], Awaitable[str]]
"""The text that the person reads. It may be called twice for one wish, to the same effect. Raises StoreError."""


@dataclass(frozen=True, slots=True)
class AskedDirectly:
    """What the answer in a direct message is made of: somebody's repositories by channel, what each shows, the time."""

    repos: Mapping[str, Repo]
    cards: Sequence[RepoCard]
    now: datetime
