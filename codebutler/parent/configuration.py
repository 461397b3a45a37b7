"""The configuration in force: taken up at the start, and read again when somebody has changed it."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler.config.channels import ChatName, served_chats
from codebutler.config.resolve import resolve_global
from codebutler.config.schema import RepoSettings
from codebutler.config.secrets import secrets_of
from codebutler.intake.repos import RepoTable
from codebutler.parent.connections import Connections
from codebutler.parent.notes import ConfigNotes
from codebutler.parent.parts import Parts
from codebutler.supervisor.supervisor import Supervisor

GRACE_S = 30.0


class Configuration:
    """``begin`` once, then ``reload``."""

    def __init__(
        self,
        parts: Parts,
        supervisor: Supervisor,
        connections: Connections,
        notes: ConfigNotes,
    ) -> None:
        self._parts = parts
        self._home, self._env = parts.given.home, parts.given.env
        self._repos = parts.repos
        self._supervisor = supervisor
        self._connections = connections
        self._notes = notes

    async def begin(self) -> None:
        """Start the workers of what is served."""
        for settings in self._settings(self._repos.table).values():
            self._supervisor.add(settings)
        self._notes.tell(self._repos.table)
        self._supervisor.start()
        await self._parts.journal.keep_channels(self._repos.channels())
        self._tell_limit()

    async def reload(self) -> str:
        """Read the registry and the configurations again; returns what changed, in a line.

        Raises ConfigError for a damaged registry or home, ChatAuthError for tokens of the wrong kind: then all
        stays as it was.
        """
        chats = self._use_tokens()
        table = RepoTable.read(self._home, self._env).of_chats(self._connections.names)
        table = table.keeping(self._repos.table)
        self._parts.redactor.learn(table.secrets(self._env))
        before, after = self._settings(self._repos.table), self._settings(table)
        for name in before.keys() - after.keys():
            await self._supervisor.remove(name, GRACE_S)
        for name in after.keys() & before.keys():
            if after[name] != before[name]:
                self._supervisor.reconfigure(after[name])
        for name in after.keys() - before.keys():
            self._supervisor.add(after[name])
        await self._parts.journal.keep_channels(self._repos.channels(table))
        self._repos.use(table)
        self._connections.look_again()
        self._notes.tell(table)
        self._connections.meet()
        summary = "; ".join((_changes(before, after), *(f"restart to connect {each}" for each in chats)))
        self._parts.logs.record("", "INF", f"configuration read again: {summary}")
        self._tell_limit()
        return summary

    @property
    def count(self) -> str:
        """How many repositories are served, in words."""
        count = len(self._repos.table.served)
        return f"{count} {'repository' if count == 1 else 'repositories'}"

    def _tell_limit(self) -> None:
        if trouble := self._parts.given.descriptors.trouble(len(self._repos.table.served)):
            self._parts.logs.record("", "WRN", trouble)

    def _use_tokens(self) -> list[ChatName]:
        """`codebutler setup` may have brought new ones; returns the chats that we were started without."""
        config = resolve_global(self._home, self._env).config
        self._parts.redactor.learn(secrets_of(config))
        self._connections.use_tokens(config)
        return [each for each in served_chats(config) if each not in self._connections.names]

    def _settings(self, table: RepoTable) -> dict[str, RepoSettings]:
        return {served.entry.name: served.settings(self._env) for served in table.served}


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
