"""What a host's repositories use, reported to the gateway for the budget of all hosts together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from codebutler.domain.errors import CodeButlerError
from codebutler.parent.host_jobs import HostedHere
from codebutler.parent.local import Record
from codebutler.parent.spending import Spending
from codebutler.protocol.hosts import UseReport
from codebutler.protocol.messages import DayUse
from codebutler.supervisor.port import Services


class HostUse:
    """Reports the use of this host; ``run`` until cancelled, beside ``spending.run``."""

    def __init__(
        self,
        hosted: Callable[[], Mapping[str, HostedHere]],
        spending: Spending,
        services: Services,
        record: Record,
    ) -> None:
        self._hosted = hosted
        self._spending = spending
        self._services = services
        self._record = record
        self._told: dict[str, dict[str, DayUse]] = {}
        self._news = asyncio.Event()
        spending.changed.add(self._news.set)

    async def run(self) -> None:
        """Report each repository's daily use, whenever it has changed."""
        while True:
            await self._news.wait()
            self._news.clear()
            hosted = self._hosted()
            self._told = {name: told for name, told in self._told.items() if name in hosted}
            for name, each in hosted.items():
                days = {day.isoformat(): use for day, use in self._spending.days(name).items()}
                if days == self._told.get(name, {}):
                    continue
                try:
                    await self._services.reported(each.settings, UseReport(days=days))
                except CodeButlerError as error:
                    self._record(name, "WRN", f"the gateway could not take its usage: {error}")
                self._told[name] = days
