"""What the supervisor tells of itself: the object of `codebutler status --json`, which the dashboard shows, too."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

import msgspec

from codebutler.parent.integration import ChatConnections, ConnectedChat, Outbound
from codebutler.parent.parts import Parts
from codebutler.protocol.messages import Budget
from codebutler.supervisor.supervisor import RepoRow, TurnsRow, WorkerRow


class ParentStatus:
    """Asked by the operator, the dashboard and systemd."""

    def __init__(self, parts: Parts, outbound: Outbound, connections: ChatConnections) -> None:
        self._parts = parts
        self._repos = parts.repos
        self._supervisor = outbound.supervisor
        self._chats = outbound.chats
        self._connections = connections
        self._started_s = parts.clock.monotonic()

    @property
    def line(self) -> str:
        """How it is, for systemd."""
        states = [f"{each.name} {each.connection.status.state}" for each in self._connections]
        return ", ".join((f"repositories: {len(self._repos.table.served)}", *states))

    async def status(self) -> dict[str, Any]:
        """The contract's status object."""
        rows = await self._supervisor.status()
        return {
            "supervisor": {
                "pid": os.getpid(),
                "version": version("codebutler"),
                "uptime_s": round(self._parts.clock.monotonic() - self._started_s, 3),
                "trouble": self._parts.given.descriptors.trouble(len(self._repos.table.served)),
            },
            **{each.name.lower(): self._chat(each) for each in self._connections},
            "repos": [self._row(row) for row in (*rows, *self._absent())],
            "journal": {
                "pending": self._parts.journal.pending_count,
                "trouble": self._parts.journal.trouble,
                "mended": self._parts.journal.mended,
            },
            "outbox": {"pending": self._supervisor.outbox_pending},
        }

    def served_as(self) -> dict[str, tuple[str, str]]:
        """Repository to its default agent and its channel's name."""
        return {
            served.entry.name: (served.config.agent.default, served.config.channel_name)
            for served in self._repos.table.served
        }

    def _chat(self, each: ConnectedChat) -> dict[str, Any]:
        trouble = self._connections.trouble(each) or self._chats.named(each.name).sender.trouble
        return {**msgspec.to_builtins(each.connection.status), "trouble": trouble}

    def _row(self, row: RepoRow) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(row)
        told = self._parts.budgets.today(row.name, self._parts.clock.now()) or Budget()
        built["today"] = msgspec.to_builtins(told.used)
        built["budget"] = msgspec.to_builtins(told.limits)
        # It may hold the last words of a worker.
        problem = self._parts.redactor.redact(row.problem)
        if not problem and (served := self._repos.table.named(row.name)):
            channels = self._chats.of(row.channel_id).sender.channels
            problem = channels.trouble(row.channel_id) or served.unheard
        built["problem"] = problem
        return built

    def _absent(self) -> list[RepoRow]:
        return [
            RepoRow(
                name=unserved.entry.name,
                path=unserved.entry.path,
                channel_id=unserved.entry.channel_id,
                worker=WorkerRow(state="stopped", pid=None, restarts=0),
                turns=TurnsRow(running=0, queued=0, waiting=0),
                problem=unserved.problem,
            )
            for unserved in self._repos.table.unserved
            if self._repos.table.named(unserved.entry.name) is None
        ]
