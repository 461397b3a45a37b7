"""The configuration in force: taken up at the start, and read again when somebody has changed it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable

from codebutler.config.channels import ChatName, served_chats
from codebutler.config.resolve import resolve_global
from codebutler.config.schema import RepoSettings
from codebutler.config.secrets import secrets_of
from codebutler.intake.journal import Journal
from codebutler.intake.repos import RepoTable, Served
from codebutler.parent.integration import ChatConnections, Outbound
from codebutler.parent.parts import Parts
from codebutler.platform.tasks import Tasks
from codebutler.protocol.messages import LogTag
from codebutler.schedule.files import difference
from codebutler.text.markup import plain

GRACE_S = 30.0


class Configuration:
    """``begin`` once, then ``reload``."""

    def __init__(self, parts: Parts, outbound: Outbound, connections: ChatConnections) -> None:
        self._parts = parts
        self._home, self._env = parts.given.home, parts.given.env
        self._repos = parts.repos
        self._supervisor = outbound.supervisor
        self._connections = connections
        self._notes = ConfigNotes(parts.journal, parts.logs.record, outbound.services.notice, parts.tasks)

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
        changes = difference(before, after) or "nothing changed"
        summary = "; ".join((changes, *(f"restart to connect {each}" for each in chats)))
        self._parts.logs.record("", "INF", f"configuration reloaded: {summary}")
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


class ConfigNotes:
    """``tell`` after each reading. What was posted is remembered in the journal, so that a restart repeats nothing.

    ``log`` takes the repository, the tag and the text; ``notice`` posts a text in a channel.
    """

    def __init__(
        self,
        journal: Journal,
        log: Callable[[str, LogTag, str], None],
        notice: Callable[[str, str], Awaitable[None]],
        tasks: Tasks,
    ) -> None:
        self._journal = journal
        self._log = log
        self._notice = notice
        self._tasks = tasks
        self._logged: dict[str, str] = {}
        self._one_by_one: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def tell(self, table: RepoTable) -> None:
        """Say what is new of ``table``. A file that was in order in between is told of again."""
        earlier, self._logged = self._logged, {}
        for unserved in table.unserved:
            self._record(earlier, unserved.entry.name, "ERR", f"not served: {unserved.problem}")
        for served in table.served:
            name, text = served.entry.name, "\n".join(served.notes)
            if logged := "\n".join((*served.notes, *filter(None, (served.unheard,)))):
                self._record(earlier, name, "WRN", logged)
            self._tasks.start(self._post(served, text), name=f"notice to {name}")

    def _record(self, earlier: dict[str, str], repo: str, tag: LogTag, text: str) -> None:
        # One that is served by its last good file has both.
        key = f"{tag} {repo}"
        self._logged[key] = text
        if earlier.get(key) != text:
            for line in text.splitlines():
                self._log(repo, tag, line)

    async def _post(self, served: Served, text: str) -> None:
        key, mark = f"config-notes {served.entry.name}", ""
        if text:
            mark = hashlib.sha256(text.encode()).hexdigest()
        async with self._one_by_one[key]:
            if await self._journal.note(key) == mark:
                return
            if text:
                await self._notice(served.channel_id, f"⚠️ {plain(text)}")
            await self._journal.keep_note(key, mark)
