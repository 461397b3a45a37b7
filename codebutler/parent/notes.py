"""What is wrong with the configurations: in the log once a run, and in the channel once for every change of it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable

from codebutler.intake.journal import Journal
from codebutler.intake.repos import RepoTable, Served
from codebutler.platform.tasks import Tasks
from codebutler.protocol.messages import LogTag
from codebutler.text.markup import plain


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
