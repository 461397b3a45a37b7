"""One supervisor at work: from start to stop, with what it tells of itself and how it takes changes in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from codebutler.apphome.scene import Shown, cards_for
from codebutler.apphome.view import RepoCard
from codebutler.config.resolve import resolve_global
from codebutler.config.schema import Config, RepoSettings
from codebutler.config.secrets import secrets_of
from codebutler.config_notes import ConfigNotes
from codebutler.control.wire import Control, control_server
from codebutler.errors import CodeButlerError
from codebutler.intake.intake import Intake, Repo
from codebutler.model import TurnNote
from codebutler.parts import Parts
from codebutler.process.stopping import Stopping
from codebutler.process.tasks import beside
from codebutler.protocol.messages import Budget, DayUse
from codebutler.repos import RepoTable, Served
from codebutler.slack.connection import SlackConnection
from codebutler.slack.endpoint import check_app_token, check_bot_token
from codebutler.supervisor.supervisor import RepoRow
from codebutler.web.front import Front

GRACE_S = 30.0
FLUSH_S = 5.0


class Parent:
    """``serve`` is its life; ``table`` is what it serves now."""

    def __init__(self, parts: Parts, table: RepoTable) -> None:
        self.table = table
        self._by_channel = table.by_channel()
        self._parts = parts
        self._started_s = parts.clock.monotonic()
        self._notes = ConfigNotes(parts.journal, parts.logs.record, parts.services.notice, parts.tasks)
        self._slack: SlackConnection | None = None
        self.front: Front | None = None

    async def serve(
        self, intake: Intake, slack: SlackConnection, control: Control, stopping: Stopping
    ) -> None:
        """Start the workers, connect, and go on until ``stopping`` asks.

        Raises ChatAuthError if Slack refuses the tokens at the start.
        """
        self._slack = slack
        parts = self._parts
        for served in self.table.served:
            parts.supervisor.add(self._settings(served))
        self._notes.tell(self.table)
        parts.supervisor.start()
        await parts.journal.keep_channels(self._channels(self.table))
        await intake.resume()
        parts.logs.record("", "INF", self._serving())
        self._tell_limit()
        async with (
            beside(self._watch_journal(), name="journal"),
            control_server(parts.home.socket, control),
        ):
            await self._until_asked(slack, stopping)
            await self._wind_down(stopping)
        parts.logs.record("", "INF", "stopped")

    def _serving(self) -> str:
        count = len(self.table.served)
        return f"serving {count} {'repository' if count == 1 else 'repositories'} (pid {os.getpid()})"

    async def _watch_journal(self) -> None:
        """What could not be accepted while the journal was away is fetched from history."""
        while True:
            self._parts.logs.record("", "ERR", await self._parts.journal.news())
            if self._slack is not None and not self._parts.journal.trouble:
                self._slack.look_again()

    def _tell_limit(self) -> None:
        if trouble := self._parts.descriptors.trouble(len(self.table.served)):
            self._parts.logs.record("", "WRN", trouble)

    async def _meet(self) -> None:
        """Get to know the names and the direct conversations of those who may talk to us."""
        users = sorted({user for served in self.table.served for user in served.config.slack.allowed_users})
        self._parts.people.meet(users)
        await self._parts.acquaintance.meet(users)

    async def _tell_ready(self, slack: SlackConnection, stopping: Stopping) -> None:
        await slack.connected.wait()
        self._parts.tasks.start(self._meet(), name="meeting people")
        await self._parts.supervisor.wait_started()
        stopping.ready.set()

    async def _until_asked(self, slack: SlackConnection, stopping: Stopping) -> None:
        """A socket that ended by itself (switched off, token refused) leaves the rest at work."""
        connection = asyncio.create_task(slack.run(), name="slack")
        asked = asyncio.create_task(stopping.asked.wait(), name="stop")
        ready = asyncio.create_task(self._tell_ready(slack, stopping), name="readiness")
        try:
            await asyncio.wait({connection, asked}, return_when=asyncio.FIRST_COMPLETED)
            if connection.done():
                connection.result()
                self._parts.logs.record("", "ERR", f"no more events from Slack: {slack.status.trouble}")
            await asked
        finally:
            asked.cancel()
            ready.cancel()
            if not connection.done():
                await slack.stop()
                connection.cancel()
            await asyncio.gather(connection, asked, ready, return_exceptions=True)

    async def _wind_down(self, stopping: Stopping) -> None:
        """Drain within the grace; at the second signal, now. What is not done is on disk."""
        self._parts.logs.record(
            "", "INF", f"stopping: {GRACE_S:g} s for what runs, a second signal ends it now"
        )
        drained = asyncio.create_task(self._drain(), name="drain")
        insisted = asyncio.create_task(stopping.insisted.wait(), name="insist")
        await asyncio.wait({drained, insisted}, return_when=asyncio.FIRST_COMPLETED)
        if not drained.done():
            await self._parts.supervisor.shutdown(0)
            drained.cancel()
        insisted.cancel()
        await asyncio.gather(drained, insisted, return_exceptions=True)

    async def _drain(self) -> None:
        await self._parts.supervisor.shutdown(GRACE_S)
        await self._parts.tasks.close(FLUSH_S)
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._parts.sender.drain()
        except TimeoutError:
            self._parts.logs.record(
                "", "WRN", f"{self._parts.sender.pending} messages are left for the next start"
            )

    def _channels(self, table: RepoTable) -> set[str]:
        """Where we listen: the repositories' channels and the direct conversations."""
        return table.channels() | set(self._parts.book.channels)

    def listened(self) -> dict[str, Repo]:
        """Channel ID to repository, and every direct conversation too, which is about any of them."""
        direct = Repo("direct messages", Config())
        return {**self._by_channel, **dict.fromkeys(self._parts.book.channels, direct)}

    def repos(self) -> dict[str, Repo]:
        """Channel ID to repository, as served now."""
        return self._by_channel

    def home_of(
        self, user: str, turns: Mapping[str, tuple[TurnNote, ...]]
    ) -> tuple[list[RepoCard] | None, str]:
        """What App Home shows to a person: their repositories, None for a stranger; what is wrong with Slack."""
        slack = self._slack.status.trouble if self._slack else ""
        now, budgets = self._parts.clock.now(), self._parts.services.budgets
        shown = Shown(turns, self._parts.channels.trouble, lambda repo: budgets.words(repo, now))
        cards = cards_for(user, self.table, self._parts.supervisor.rows(), shown)
        return cards, slack or self._parts.sender.trouble

    def served_as(self) -> dict[str, tuple[str, str]]:
        """Repository to its default agent and its channel's name."""
        return {
            served.entry.name: (served.config.agent.default, served.config.slack.channel_name)
            for served in self.table.served
        }

    def dashboard(self) -> str:
        """A link that opens the dashboard once. Raises CodeButlerError when there is none."""
        if self.front is None:
            raise CodeButlerError("there is no dashboard yet: try again")
        return self.front.link()

    def path_of(self, repo: str) -> Path | None:
        """Where a served repository is; None if it is not there."""
        served = self.table.named(repo)
        return path if served is not None and (path := Path(served.entry.path)).is_dir() else None

    async def reload(self) -> str:
        """Read the registry and the configurations again; returns what changed, in a line.

        Raises ConfigError for a damaged registry or home, ChatAuthError for tokens of the wrong kind: then all
        stays as it was.
        """
        self._use_tokens()
        table = RepoTable.read(self._parts.home, self._parts.env).keeping(self.table)
        self._parts.redactor.learn(table.secrets(self._parts.env))
        before = {served.entry.name: self._settings(served) for served in self.table.served}
        after = {served.entry.name: self._settings(served) for served in table.served}
        for name in before.keys() - after.keys():
            await self._parts.supervisor.remove(name, GRACE_S)
        for name in after.keys() & before.keys():
            if after[name] != before[name]:
                self._parts.supervisor.reconfigure(after[name])
        for name in after.keys() - before.keys():
            self._parts.supervisor.add(after[name])
        await self._parts.journal.keep_channels(self._channels(table))
        self.table = table
        self._by_channel = table.by_channel()
        if self._slack is not None:
            self._slack.look_again()
        self._notes.tell(self.table)
        self._parts.tasks.start(self._meet(), name="meeting people")
        summary = _changes(before, after)
        self._parts.logs.record("", "INF", f"configuration read again: {summary}")
        self._tell_limit()
        return summary

    def _use_tokens(self) -> None:
        """`codebutler setup` may have brought new ones."""
        parts = self._parts
        config = resolve_global(parts.home, parts.env).config
        bot_token, app_token = (
            check_bot_token(config.slack.bot_token),
            check_app_token(config.slack.app_token),
        )
        parts.redactor.learn(secrets_of(config))
        parts.api.use_token(bot_token)
        if self._slack is not None:
            self._slack.use_token(app_token)

    def _settings(self, served: Served) -> RepoSettings:
        return served.settings(self._parts.env)

    async def status(self) -> dict[str, Any]:
        """The contract's status object."""
        parts = self._parts
        slack = self._slack.status if self._slack else None
        socket = {} if slack is None else msgspec.to_builtins(slack)
        rows = await parts.supervisor.status()
        return {
            "supervisor": {
                "pid": os.getpid(),
                "version": version("codebutler"),
                "uptime_s": round(parts.clock.monotonic() - self._started_s, 3),
                "trouble": parts.descriptors.trouble(len(self.table.served)),
            },
            "slack": {**socket, "trouble": socket.get("trouble") or parts.sender.trouble},
            "repos": [*map(self._row, rows), *self._absent()],
            "journal": {
                "pending": parts.journal.pending_count,
                "trouble": parts.journal.trouble,
                "mended": parts.journal.mended,
            },
            "outbox": {"pending": parts.supervisor.outbox_pending},
            "dashboard": {"url": self.front.url if self.front else ""},
        }

    def _row(self, row: RepoRow) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(row)
        served = self.table.named(row.name)
        told = self._parts.services.budgets.today(row.name, self._parts.clock.now()) or Budget()
        return {
            **built,
            "today": msgspec.to_builtins(told.used),
            "budget": msgspec.to_builtins(told.limits),
            # It may hold the last words of a worker.
            "problem": self._parts.redactor.redact(row.problem)
            or self._parts.channels.trouble(row.channel_id)
            or (served.unheard if served else ""),
        }

    def _absent(self) -> list[dict[str, Any]]:
        return [
            {
                "name": unserved.entry.name,
                "path": unserved.entry.path,
                "channel_id": unserved.entry.channel_id,
                "worker": {
                    "state": "stopped",
                    "pid": None,
                    "restarts": 0,
                    "pss_bytes": None,
                    "programs": None,
                    "undelivered": 0,
                },
                "turns": {"running": 0, "queued": 0, "waiting": 0, "parked": 0},
                "today": msgspec.to_builtins(DayUse()),
                "budget": [],
                "problem": unserved.problem,
                "doubt": "",
            }
            for unserved in self.table.unserved
            if self.table.named(unserved.entry.name) is None
        ]


def _changes(before: Mapping[str, RepoSettings], after: Mapping[str, RepoSettings]) -> str:
    added = sorted(after.keys() - before.keys())
    removed = sorted(before.keys() - after.keys())
    changed = sorted(name for name in after.keys() & before.keys() if after[name] != before[name])
    words = [
        f"{verb} {', '.join(names)}"
        for verb, names in (("added", added), ("removed", removed), ("changed", changed))
        if names
    ]
    return "; ".join(words) or "nothing changed"
