"""What people are told of a configuration that is not the trusted one: once, however often we start."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.chats import SlackSection
from codebutler.config.registry import RepoEntry
from codebutler.config.schema import Config
from codebutler.intake.journal import Journal
from codebutler.intake.repos import RepoTable, Served, Unserved
from codebutler.parent.configuration import ConfigNotes
from codebutler.platform.tasks import Tasks
from codebutler.protocol.messages import LogTag
from tests.clock import ManualClock

ENTRY = RepoEntry(name="sample", path="/repo", digest="", channel_id="C1")
NOTE = "the file is not the trusted one: ignoring sandbox.mode"


def table(*notes: str) -> RepoTable:
    config = Config(slack=SlackSection(channel_id="C1"))
    return RepoTable((Served(ENTRY, config, notes, trusted=not notes),))


class Run:
    """One life of a supervisor."""

    def __init__(self, journal: Journal) -> None:
        self.logged: list[str] = []
        self.posted: list[str] = []
        self.failures: list[str] = []
        self._tasks = Tasks(lambda name, error: self.failures.append(f"{name}: {error!r}"))
        self._notes = ConfigNotes(journal, self._log, self._notice, self._tasks)

    async def reads(self, *tables: RepoTable) -> None:
        for each in tables:
            self._notes.tell(each)
        await self._tasks.close(30)
        assert self.failures == []

    def _log(self, repo: str, tag: LogTag, text: str) -> None:
        self.logged.append(f"{tag} [{repo}] {text}")

    async def _notice(self, channel: str, text: str) -> None:
        self.posted.append(f"{channel}: {text}")


async def test_a_warning_is_posted_once_for_each_change_and_logged_once_a_run(tmp_path: Path) -> None:
    async with Journal.open(tmp_path / "journal.db", ManualClock()) as journal:
        first = Run(journal)
        await first.reads(table(NOTE), table(NOTE))
        assert first.logged == [f"WRN [sample] {NOTE}"]
        assert first.posted == [f"C1: ⚠️ {NOTE}"]
    async with Journal.open(tmp_path / "journal.db", ManualClock()) as journal:
        again = Run(journal)
        await again.reads(table(NOTE))
        assert again.logged == [f"WRN [sample] {NOTE}"]
        assert again.posted == []
        await again.reads(table(f"{NOTE}, commands"))
        assert again.posted == [f"C1: ⚠️ {NOTE}, commands"]


async def test_what_was_in_order_in_between_is_told_of_again(tmp_path: Path) -> None:
    async with Journal.open(tmp_path / "journal.db", ManualClock()) as journal:
        run = Run(journal)
        await run.reads(table(NOTE), table(), table(NOTE))
        assert run.posted == [f"C1: ⚠️ {NOTE}"] * 2
        assert run.logged == [f"WRN [sample] {NOTE}"] * 2


async def test_a_channel_that_nobody_listens_to_is_told_in_the_log_alone(tmp_path: Path) -> None:
    config = Config(slack=SlackSection(channel_id="C1", listen_channels=("C2",)))
    deaf = RepoTable((Served(ENTRY, config, (NOTE,), trusted=False),))
    assert deaf.by_channel() == {}
    async with Journal.open(tmp_path / "journal.db", ManualClock()) as journal:
        run = Run(journal)
        await run.reads(deaf, deaf)
        assert run.posted == [f"C1: ⚠️ {NOTE}"]
        assert run.logged == [
            f"WRN [sample] {NOTE}",
            "WRN [sample] messages in C1 are ignored: add it to slack.listenChannels (SLACK_LISTEN_CHANNELS)",
        ]


async def test_what_is_not_served_is_logged_once_while_it_stays_so(tmp_path: Path) -> None:
    async with Journal.open(tmp_path / "journal.db", ManualClock()) as journal:
        run = Run(journal)
        broken = RepoTable(table().served, (Unserved(ENTRY, "malformed"),))
        await run.reads(broken, broken, table(), broken)
        assert run.logged == ["ERR [sample] not served: malformed"] * 2
        assert run.posted == []
