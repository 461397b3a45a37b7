"""The configuration in force: read at the start, and again after each change."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable

from codebutler.config.channels import served_chats
from codebutler.config.resolve import resolve_global, secrets_of
from codebutler.config.schema import RepoSettings
from codebutler.domain.refs import ConversationRef
from codebutler.intake.journal import Journal
from codebutler.intake.repos import RepoTable, Served
from codebutler.parent.integration import ChatConnections, Outbound
from codebutler.parent.parts import Parts
from codebutler.platform.tasks import Tasks
from codebutler.protocol.messages import LogTag
from codebutler.schedule.files import difference
from codebutler.text.markup import plain

GRACE_S = 30.0
AT_START = ("dashboard", "metrics", "tracing", "logs")
"""Sections that the supervisor reads only when it starts."""


class Configuration:
    """Reads the configuration and puts it into force: ``begin`` once, then ``reload``."""

    def __init__(self, parts: Parts, outbound: Outbound, connections: ChatConnections) -> None:
        self._parts = parts
        self._home, self._env = parts.given.home, parts.given.env
        self._repos = parts.repos
        self._supervisor = outbound.supervisor
        self._connections = connections
        self._one_at_a_time = asyncio.Lock()
        self._notes = ConfigNotes(parts.journal, parts.logs.record, outbound.services.notice, parts.tasks)

    async def begin(self) -> None:
        """Start the workers of the served repositories."""
        for settings in self._settings(self._repos.table).values():
            self._supervisor.add(settings)
        self._notes.tell(self._repos.table)
        self._supervisor.start()
        await self._parts.journal.keep_channels(self._repos.channels())
        self._tell_limit()

    async def reload(self) -> str:
        """Read the registry and the configurations again; returns the changes in a line.

        Raises ConfigError for a damaged registry or home, ChatAuthError for tokens of the wrong kind: nothing
        changes then.
        """
        async with self._one_at_a_time:
            return await self._reload()

    async def _reload(self) -> str:
        to_restart = self._use_tokens()
        # Half a second for a thousand repositories: a gateway's lease does not wait for that.
        table = await asyncio.to_thread(
            RepoTable.read, self._home, self._env, of_hosts=self._parts.given.serves_hosts
        )
        table = table.of_chats(self._connections.names).keeping(self._repos.table)
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
        changes = filter(None, (difference(before, after), *to_restart))
        summary = "; ".join(changes) or "nothing changed"
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

    def _use_tokens(self) -> list[str]:
        """`codebutler setup` may have added chats; returns what only a restart brings into effect."""
        config = resolve_global(self._home, self._env).config
        self._parts.redactor.learn(secrets_of(config))
        self._connections.use_tokens(config)
        chats = [each for each in served_chats(config) if each not in self._connections.names]
        started = self._parts.given.config
        late = [each for each in AT_START if getattr(config, each) != getattr(started, each)]
        return [
            *(f"restart to connect {each}" for each in chats),
            *(f"restart to apply {each}" for each in late),
        ]

    def _settings(self, table: RepoTable) -> dict[str, RepoSettings]:
        return {served.entry.name: served.settings(self._env) for served in table.served}


class ConfigNotes:
    """Reports configuration files that cannot be used; call ``tell`` after each reading. The journal remembers what was
    posted, so that a restart repeats nothing.

    ``log`` takes the repository, the tag and the text; ``notice`` posts a text in a channel.
    """

    def __init__(
        self,
        journal: Journal,
        log: Callable[[str, LogTag, str], None],
        notice: Callable[[ConversationRef, str], Awaitable[None]],
        tasks: Tasks,
    ) -> None:
        self._journal = journal
        self._log = log
        self._notice = notice
        self._tasks = tasks
        self._logged: dict[str, str] = {}
        self._one_by_one: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def tell(self, table: RepoTable) -> None:
        """Report what is new in ``table``. A file that was fine in between is reported again."""
        earlier, self._logged = self._logged, {}
        for unserved in table.unserved:
            self._record(earlier, unserved.entry.name, "ERR", f"not served: {unserved.problem}")
        for served in table.served:
            name, text = served.entry.name, "\n".join(served.notes)
            if logged := "\n".join((*served.notes, *filter(None, (served.unheard,)))):
                self._record(earlier, name, "WRN", logged)
            self._tasks.start(self._post(served, text), name=f"notice to {name}")

    def _record(self, earlier: dict[str, str], repo: str, tag: LogTag, text: str) -> None:
        # One served with its last good file has both.
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
