"""A dashboard on a real port, over a parent that is told what it knows."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from codebutler.config.schema import DashboardSection
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.model import TurnNote
from codebutler.intake.intake import Outcome
from codebutler.observe.ring import LineFormatter, Ring
from codebutler.platform.files import PrivateDir
from codebutler.platform.tasks import beside
from codebutler.schedule.jobs import Hook
from codebutler.text.redact import Redactor
from codebutler.web.dashboard.dashboard import Dashboard, Sources
from codebutler.web.dashboard.keys import Keys
from codebutler.web.front import Hooks, WebServer

DEADLINE_S = 30
CONNECTED = {
    "state": "connected",
    "connections": 1,
    "reconnects": 0,
    "last_event_age_s": None,
    "trouble": "",
    "catching_up": False,
}


class Knowing:
    """The parent: ``repos``, ``turns``, ``jobs`` and ``slack`` are what it knows."""

    def __init__(self) -> None:
        self.repos: list[dict[str, Any]] = [repo("shop")]
        self.turns: dict[str, tuple[TurnNote, ...]] = {}
        self.jobs: list[dict[str, Any]] = []
        self.slack: dict[str, Any] = dict(CONNECTED)
        self.looks = 0
        self._started_s = time.monotonic()

    async def status(self) -> dict[str, Any]:
        self.looks += 1
        return {
            "supervisor": {
                "pid": 4711,
                "version": "0.1.0",
                "uptime_s": 11_000.0 + time.monotonic() - self._started_s,
            },
            "slack": self.slack,
            "repos": self.repos,
            "journal": {"pending": 0},
            "outbox": {"pending": 2},
        }

    def served_as(self) -> Mapping[str, tuple[str, str]]:
        return {each["name"]: ("claude", each["name"]) for each in self.repos}


class NoHooks:
    """There is none to be called."""

    hooks: Mapping[str, Hook] = {}

    async def called(self, hook: Hook, body: object, key: str) -> Outcome:
        raise AssertionError(hook)


class Watched:
    """One dashboard: what it is told, its log, and where it is."""

    def __init__(self, home: Path, port: int, clock: Clock | None = None) -> None:
        self.home = home
        self.known = Knowing()
        self.redactor = Redactor()
        self.ring = Ring(LineFormatter(self.redactor.redact).describe)
        self.logger = logging.getLogger(f"dashboard-{id(self)}")
        self.logger.propagate = False
        self.logger.setLevel(logging.DEBUG)
        self.logger.addHandler(self.ring)
        self.clock = clock = clock or SystemClock()
        sources = Sources(
            status=self.known.status,
            served_as=self.known.served_as,
            turns=lambda: self.known.turns,
            jobs=lambda: self.known.jobs,
            ring=self.ring,
            workspace_url=self._workspace_url,
            clean=self.redactor.redact,
        )
        place = PrivateDir(home, follow_links=True, create=True)
        keys = Keys(place, clock, secrets.token_urlsafe, self.redactor.learn)
        self.dashboard = Dashboard(sources, keys, clock)
        self.front = WebServer(DashboardSection(port=port), Hooks(NoHooks(), clock), self.dashboard)

    def log(self, text: str, tag: str = "INF", repo: str = "") -> None:
        """A line of the log."""
        self.logger.log(
            logging.ERROR if tag == "ERR" else logging.INFO, "%s", text, extra={"tag": tag, "repo": repo}
        )

    async def _workspace_url(self) -> str:
        return "https://acme.slack.com/"


@asynccontextmanager
async def watched(home: Path, port: int = 0) -> AsyncIterator[Watched]:
    """A dashboard that listens while the block lasts."""
    built = Watched(home, port)
    async with beside(built.front.run(), name="front"):
        async with asyncio.timeout(DEADLINE_S):
            await built.front.listening.wait()
        yield built


def repo(name: str, state: str = "running", problem: str = "", **turns: int) -> dict[str, Any]:
    """A row of `codebutler status`."""
    pid, pss = (4712, 11 * 2**20) if state in ("running", "starting") else (None, None)
    return {
        "name": name,
        "path": f"/src/{name}",
        "channel_id": "C0123456",
        "worker": {"state": state, "pid": pid, "restarts": 0, "pss_bytes": pss},
        "turns": {"running": 0, "queued": 0, "waiting": 0, "parked": 0} | turns,
        "today": {"runs": 0, "tokens": 0, "usd": 0.0, "minutes": 0.0},
        "budget": [],
        "problem": problem,
    }


def turn(state: str, text: str, minutes: int = 5, **more: Any) -> TurnNote:
    """A turn that came to be so, so long ago."""
    at = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    thread = f"17{minutes:08d}.000001"
    return TurnNote(state=state, thread_ts=thread, text=text, agent="claude", at=at, id=thread, **more)
