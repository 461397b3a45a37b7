"""The parent's services as the supervisor's tests see them: everything asked of them is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from codebutler.chat.port import Download
from codebutler.config.schema import Config, RepoSettings, WorkerSection
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.model import File, NoRequest, Operation, Quoted
from codebutler.intake.records import Entry
from codebutler.observe.chain import AuditAct
from codebutler.protocol.capabilities import HostReport
from codebutler.protocol.conversations import Traced
from codebutler.protocol.messages import Doing, LogTag, TotalUse, TurnEnded
from codebutler.supervisor.port import News
from tests.events import posted


def entry(seq: int, text: str = "store", channel: str = "C01") -> Entry:
    event = posted(channel=channel, ref=f"{seq}.000100", user="U01", text=text)
    return Entry(seq, channel, event, NoRequest(), datetime(2026, 1, 1, tzinfo=UTC))


def repo(name: str = "shop", channel: str = "C01", idle_min: float = 0, **agent_env: str) -> RepoSettings:
    config = Config(worker=WorkerSection(idle_sleep_minutes=idle_min))
    return RepoSettings(
        name=name, path=f"/srv/{name}", channel_id=channel, config=config, agent_env=dict(agent_env)
    )


class RecordingServices:
    """Answers each operation with ``posted-<op>`` unless told otherwise; ``until`` waits for what happens."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Operation, bool]] = []
        self.settled: list[int] = []
        self.notices: list[tuple[str, str]] = []
        self.audits: list[AuditAct] = []
        self.doings: list[tuple[str, str, str]] = []
        self.ended: list[TurnEnded] = []
        self.logs: list[tuple[str, str, str]] = []
        self.answers: dict[str, list[ChatError | str]] = {}
        self.files: dict[str, tuple[bytes, ...] | str | ChatError] = {}
        self.threads: dict[str, tuple[Quoted, ...] | Exception] = {}
        self.totals: dict[str, TotalUse] = {}
        self.known_runs: dict[str, str] = {}
        self.traced: list[Traced] = []
        self.reports: list[tuple[str, HostReport]] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.settle_error: StoreError | None = None
        self._happened = asyncio.Event()

    async def send(self, repo: RepoSettings, op_id: str, operation: Operation, *, unsure: bool) -> str:
        self.sent.append((repo.name, op_id, operation, unsure))
        self._note()
        await self.hold.wait()
        answer = self.answers[op_id].pop(0) if self.answers.get(op_id) else f"posted-{op_id}"
        if isinstance(answer, ChatError):
            raise answer
        return answer

    async def fetch(
        self, repo: RepoSettings, file_id: str, take: Callable[[bytes], Awaitable[None]]
    ) -> Download:
        found = self.files.get(file_id, ChatError(code="file_not_found"))
        if isinstance(found, ChatError):
            raise found
        for piece in found if isinstance(found, tuple) else ():
            await take(piece)
        return Download(file=File(id=file_id), transcript=found if isinstance(found, str) else "")

    def show(self, repo: RepoSettings, news: News) -> None:
        if isinstance(news, Traced):
            self.traced.append(news)
        if isinstance(news, Doing):
            self.doings.append((repo.name, news.thread, news.text))
            self._note()

    async def turn_ended(self, repo: RepoSettings, ended: TurnEnded) -> None:
        self.ended.append(ended)
        self._note()

    async def thread(
        self, repo: RepoSettings, thread_ts: str, before_ts: str
    ) -> tuple[tuple[Quoted, ...], int]:
        found = self.threads.get(thread_ts, ChatError(code="thread_not_found"))
        if isinstance(found, Exception):
            raise found
        return tuple(each for each in found if each.ref < before_ts), 0

    async def reported(self, repo: RepoSettings, report: HostReport) -> None:
        self.reports.append((repo.name, report))
        self._note()

    def runs_known(self, repo: RepoSettings) -> str | None:
        return self.known_runs.get(repo.name)

    async def settle(self, seq: int) -> None:
        self._note()
        if self.settle_error is not None:
            raise self.settle_error
        self.settled.append(seq)

    def total(self, repo: RepoSettings) -> TotalUse | None:
        return self.totals.get(repo.name)

    async def quarantined(self, repo: RepoSettings, why: str) -> None:
        self.notices.append((repo.name, why))
        self._note()

    def audit(self, act: AuditAct) -> None:
        self.audits.append(act)
        self._note()

    def log(self, repo: str, tag: LogTag, text: str) -> None:
        self.logs.append((repo, tag, text))
        self._note()

    def log_text(self, repo: str) -> str:
        return "\n".join(text for name, _, text in self.logs if name == repo)

    async def until(self, condition: Callable[[], bool], within_s: float = 10.0) -> None:
        """Wait until ``condition`` holds; it is looked at whenever a service was called."""
        async with asyncio.timeout(within_s):
            while not condition():
                self._happened.clear()
                await self._happened.wait()

    def _note(self) -> None:
        self._happened.set()
