"""The sections about processes, their logs and their pages. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from codebutler.config.schema.bounds import Positive, Section, YearInMinutes


class SessionSection(Section, frozen=True):
    """How long a program may run."""

    timeout_minutes: YearInMinutes = 30


class LogsSection(Section, frozen=True):
    """What is logged, and for how many days it is kept."""

    level: Literal["debug", "info", "warn", "error"] = "info"
    retention_days: Positive = 30


class WorkerSection(Section, frozen=True):
    """When a worker with nothing to do sleeps; 0 = never."""

    idle_sleep_minutes: Annotated[float, Meta(ge=0, le=525_600)] = 15


class DashboardSection(Section, frozen=True):
    """Where the supervisor serves HTTP."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 7788
