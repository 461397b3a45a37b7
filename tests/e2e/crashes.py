"""A house whose processes die at labelled points, a person who goes on talking, and a checker of the record.

The person answers every question the house asks after a crash, Continue and Drop in turn; the supervisor is
started again whenever it died. When all is quiet, ``verdict`` compares the workspace's whole record with the
ledgers on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from codebutler.config.paths import Home
from codebutler.config.registry import Registry, RepoEntries, RepoEntry, add
from codebutler.platform import kill_points
from codebutler.workspace.server import Options, WorkspaceServer
from codebutler.workspace.socket import Timing
from codebutler.workspace.state import Message, MethodError
from tests.e2e.house import FINAL, House, environment
from tests.ledger import Shown, check, rows, unsettled

PATIENCE_S = 60.0
CLICK_AGAIN_S = 3.0
# Slack sends an event again after a minute and after five; here nobody wants to wait that long.
IMPATIENT = Timing(ack_s=1.0, retries_s=(0.3,) * 100)
# What the parent says by itself after an outage that lasted (on a busy machine a death is one): in no store.
PARENTS = "back-"
Point = tuple[str, int]


@dataclass
class Talk:
    """What one person said in one repository's channel, and where its ledgers are."""

    house: CrashHouse
    name: str
    repo: Path
    channel: str
    said: list[str] = field(default_factory=list)
    choices: Any = field(default_factory=lambda: cycle(("codebutler.retry", "codebutler.drop")))

    async def say(self, times: int) -> None:
        """A message, and replies in its thread while the first is being worked on."""
        root: str | None = None
        for _ in range(times):
            ts = await self._say(root)
            root = root or ts

    async def _say(self, root: str | None) -> str:
        note = f"note-{len(self.said)}.txt"
        ts = await self.house.built.say(self.channel, f"append here to {note}", thread_ts=root)
        self.said.append(ts)
        return ts

    async def until_over(self) -> None:
        """Until every message has its one final mark, no button is left, and the ledgers are settled."""
        while (question := await self._until_quiet()) != ("", ""):
            await self._decide(*question)
        async with asyncio.timeout(PATIENCE_S):
            while self.unsettled():  # noqa: ASYNC110 - the ledgers are other processes' files
                await asyncio.sleep(0.05)

    async def until_asked(self) -> tuple[str, str]:
        """Until a question stands in the channel; returns its ts and value."""
        return await self.house.built.until("a question", self.question)

    async def _until_quiet(self) -> tuple[str, str]:
        """The next question to decide, or a pair of nothing when all is over."""
        try:
            return await self.house.built.workspace.until(self._next, PATIENCE_S)
        except TimeoutError:
            marks = {ts: self._marks(ts) for ts in self.said if len(self._marks(ts)) != 1}
            buttons = [message.text for message in self.messages() if _buttons(message)]
            log = self.house.built.log()[-5000:]
            raise AssertionError(
                f"{self.name} never ended: {marks} {buttons} {self.unsettled()}\n{log}"
            ) from None

    def _next(self) -> tuple[str, str] | None:
        if question := self.question():
            return question
        over = all(self._marks(ts) <= FINAL and len(self._marks(ts)) == 1 for ts in self.said)
        return ("", "") if over and not any(_buttons(message) for message in self.messages()) else None

    def question(self) -> tuple[str, str] | None:
        for message in self.messages():
            if value := _buttons(message).get("codebutler.drop"):
                return message.ts, value
        return None

    async def _decide(self, ts: str, value: str) -> None:
        """Press a button until it is gone: what a person does when nothing seems to happen."""
        workspace = self.house.built.workspace
        await workspace.until(lambda: len(workspace.hub.connections) or None, PATIENCE_S)
        with contextlib.suppress(MethodError, TimeoutError):
            await self.house.built.click(self.channel, ts, next(self.choices), value)
            await workspace.until(lambda: self.question() != (ts, value) or None, CLICK_AGAIN_S)

    def messages(self) -> list[Message]:
        return list(self.house.built.workspace.workspace.channel(self.channel).messages.values())

    def _marks(self, ts: str) -> set[str]:
        found = self.house.built.workspace.workspace.channel(self.channel).messages[ts].reactions
        return {name for name, people in found.items() if people}

    @property
    def store(self) -> Path:
        return self.repo / ".codebutler" / "store.db"

    def unsettled(self) -> list[str]:
        """What the ledgers still hold as under way."""
        journal = self.house.built.home / "journal.db"
        waiting = "SELECT key FROM entries WHERE event IS NOT NULL AND channel = ?"
        return [*(str(row[0]) for row in rows(journal, waiting, self.channel)), *unsettled(self.store)]

    def verdict(self) -> None:
        """The record is as it must be, and the agent did nothing twice."""
        assert self.unsettled() == []
        ours = [
            Shown(message.ts, _op_id(message), f"{message.text}\n{message.blocks}")
            for message in self.messages()
            if message.by_app and not _op_id(message).startswith(PARENTS)
        ]
        check(self.store, ours, self.said, self._marks)
        for number in range(len(self.said)):
            note = self.repo / f"note-{number}.txt"
            done = note.read_text().count("here") if note.exists() else 0
            assert done <= 1, f"{note.name}: done twice"


class CrashHouse:
    """Repositories with a supervisor that is started again whenever it dies."""

    def __init__(self, built: House, plans: Path) -> None:
        self.built = built
        self.plans = plans
        self.talks: list[Talk] = []
        self.deaths = 0

    def plan(self, process: str, *points: Point) -> None:
        """From now on ``process`` dies at these points, one per life."""
        written = self.plans / f"{process}.new"
        written.write_text("".join(f"{label} {times}\n" for label, times in points))
        written.replace(self.plans / f"{process}.plan")

    def left(self, process: str) -> list[str]:
        """What of the plan has not happened; the plan is dropped."""
        plan = self.plans / f"{process}.plan"
        lines = plan.read_text().splitlines() if plan.exists() else []
        plan.unlink(missing_ok=True)
        return lines

    def forget_passed(self) -> None:
        for file in self.plans.glob("*.passed"):
            file.unlink()

    def passed(self, process: str) -> Counter[str]:
        """How often each point was passed since they were forgotten."""
        file = self.plans / f"{process}.passed"
        return Counter(file.read_text().split() if file.exists() else [])

    async def renew(self) -> None:
        """Another life of the supervisor, whose allowance of Slack calls is unspent."""
        supervisor = self.built.supervisor
        assert supervisor is not None
        if supervisor.returncode is None:
            supervisor.send_signal(signal.SIGKILL)
        await supervisor.wait()

    async def keep_alive(self) -> None:
        """Start the supervisor again each time it was killed."""
        while self.built.supervisor is not None:
            code = await self.built.supervisor.wait()
            if code != -signal.SIGKILL:
                return
            self.deaths += 1
            await self.built.start_supervisor()


def points_of(passed: Counter[str]) -> list[Point]:
    """Every point and every passage of it."""
    return [(label, k) for label in sorted(passed) for k in range(1, passed[label] + 1)]


@asynccontextmanager
async def crash_house(tmp_path: Path, names: Sequence[str]) -> AsyncIterator[CrashHouse]:
    """A supervisor at work for a repository per name, with the rehearsal agent and no walls."""
    home, plans = tmp_path / "home", tmp_path / "plans"
    home.mkdir(mode=0o700)
    plans.mkdir()
    options = Options(channels=tuple(names), timing=IMPATIENT)
    async with WorkspaceServer(options) as workspace:
        env = environment(workspace, home) | {kill_points.VARIABLE: str(plans)}
        made = CrashHouse(House(workspace, home, env), plans)
        _configure(home, workspace)
        for name in names:
            repo = tmp_path / name
            repo.mkdir()
            channel = workspace.channel_id(name)
            workspace.call("conversations.join", workspace.bot_token, channel=channel)
            entry = RepoEntry(name=name, path=str(repo), channel_id=channel)
            Registry(Home(home)).update(partial(_with, entry))
            made.talks.append(Talk(made, name, repo, channel))
        try:
            await made.built.supervise()
            alive = asyncio.create_task(made.keep_alive(), name="keep alive")
            try:
                yield made
            finally:
                alive.cancel()
                await asyncio.gather(alive, return_exceptions=True)
        finally:
            if made.built.supervisor is not None:
                await made.built.stop()


def _configure(home: Path, workspace: WorkspaceServer) -> None:
    config = {
        "slack": workspace.section,
        "agent": {"default": "rehearsal", "debounceSeconds": 0},
        "sandbox": {"mode": "none"},
    }
    file = home / "config.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))


def _with(entry: RepoEntry, entries: RepoEntries) -> RepoEntries:
    return add(entries, entry)


def _op_id(message: Message) -> str:
    return str((message.metadata or {}).get("event_payload", {}).get("op_id", ""))


def _buttons(message: Message) -> dict[str, str]:
    elements = [element for block in message.blocks for element in block.get("elements", [])]
    return {e["action_id"]: e["value"] for e in elements if isinstance(e, dict) and "action_id" in e}
