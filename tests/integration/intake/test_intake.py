"""The door for events, over a real journal: what is kept, what is refused, what goes on to a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from codebutler.config.chats import SlackSection
from codebutler.config.permission import Decision
from codebutler.config.schema import AgentSection, Config
from codebutler.domain.errors import StoreError
from codebutler.domain.model import Event, MessagePosted, Prompt, Request
from codebutler.intake.intake import Intake, Outcome, Threads
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.intake.repos import Repo
from codebutler.observe.chain import act_of
from tests.clock import ManualClock
from tests.events import posted

OWNER = "U0OWNER"


class Books:
    """Notes what was routed and what was refused."""

    def __init__(self) -> None:
        self.routed: list[Entry] = []
        self.refusals: list[tuple[str, bool]] = []
        self.commands: list[str] = []
        self.without_space: list[str] = []

    def refused(self, event: Event, request: Request, decision: Decision, *, tell: bool) -> None:
        self.refusals.append((event.user, tell))

    def commanded(self, event: Event, request: Request) -> None:
        self.commands.append(act_of(event, request, "").kind)

    def counted(self, outcome: Outcome, seconds: float) -> None:
        pass

    def no_space(self, event: Event) -> None:
        self.without_space.append(event.channel)


class Desk:
    """An intake with its journal, its books and its clock."""

    def __init__(self, path: Path, config: Config, awaits: Callable[[Repo, str], bool] | None = None) -> None:
        self.clock = ManualClock()
        self.journal = Journal.open(path, self.clock)
        self.books = Books()
        self.intake = Intake(
            repos={"C1": Repo("sample", config)},
            journal=self.journal,
            dispatch=self.books.routed.append,
            refusals=self.books,
            clock=self.clock,
            threads=Threads(awaits=awaits) if awaits else Threads(),
        )


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path / "journal.db", Config(slack=SlackSection(allowed_users=(OWNER,))))
    yield made
    await made.journal.close()


def message(ts: str = "1.1", user: str = OWNER, text: str = "hello", channel: str = "C1") -> MessagePosted:
    return posted(channel=channel, ref=ts, user=user, text=text)


async def test_an_accepted_event_is_on_disk_and_then_routed(desk: Desk, tmp_path: Path) -> None:
    assert await desk.intake.accept(message()) == "accepted"
    assert [entry.request for entry in desk.books.routed] == [Prompt(text="hello")]
    assert [entry.event for entry in await desk.journal.pending()] == [message()]


async def test_a_second_delivery_is_recognised_and_not_routed(desk: Desk) -> None:
    outcomes = [await desk.intake.accept(message()) for _ in range(3)]
    assert outcomes == ["accepted", "duplicate", "duplicate"]
    assert len(desk.books.routed) == 1


async def test_an_unknown_channel_is_nobodys(desk: Desk) -> None:
    assert await desk.intake.accept(message(channel="C9")) == "ignored"
    assert desk.journal.pending_count == 0


async def test_a_stranger_is_told_once_an_hour_and_audited_each_time(desk: Desk) -> None:
    for number in range(3):
        assert await desk.intake.accept(message(ts=f"1.{number}", user="U0GUEST")) == "refused"
    await desk.clock.advance(3601)
    await desk.intake.accept(message(ts="1.9", user="U0GUEST"))
    assert desk.books.refusals == [
        ("U0GUEST", True),
        ("U0GUEST", False),
        ("U0GUEST", False),
        ("U0GUEST", True),
    ]
    assert desk.journal.pending_count == 0


async def test_a_refused_message_that_comes_again_is_neither_told_nor_audited_again(desk: Desk) -> None:
    outcomes = [await desk.intake.accept(message(user="U0GUEST"), missed=missed) for missed in (False, True)]
    assert outcomes == ["refused", "refused"]
    assert desk.books.refusals == [("U0GUEST", True)]


async def test_an_allowed_user_hears_of_every_refusal(desk: Desk) -> None:
    for number in range(2):
        await desk.intake.accept(message(ts=f"1.{number}", text="!c rm -rf /"))
    assert desk.books.refusals == [(OWNER, True), (OWNER, True)]


async def test_what_cannot_be_kept_is_not_accepted(desk: Desk) -> None:
    await desk.journal.close()
    with pytest.raises(StoreError):
        await desk.intake.accept(message())
    assert desk.books.routed == []


async def test_what_an_earlier_life_kept_is_routed_again_in_order(tmp_path: Path) -> None:
    config = Config(slack=SlackSection(allowed_users=(OWNER,)))
    first = Desk(tmp_path / "journal.db", config)
    for number in range(5):
        await first.intake.accept(message(ts=f"1.{number}"))
    await first.journal.settle(first.books.routed[0].seq)
    await first.journal.close()
    second = Desk(tmp_path / "journal.db", config)
    assert await second.intake.resume() == 4
    assert [entry.event for entry in second.books.routed] == [message(ts=f"1.{n}") for n in range(1, 5)]
    await second.journal.close()


async def test_with_mention_only_plain_talk_passes_by(tmp_path: Path) -> None:
    config = Config(slack=SlackSection(allowed_users=(OWNER,)), agent=AgentSection(mention="mention"))
    desk = Desk(tmp_path / "journal.db", config)
    mentioned = posted(channel="C1", ref="1.2", user=OWNER, text="hello", mentioned=True)
    outcomes = [
        await desk.intake.accept(event) for event in (message(), mentioned, message("1.3", text="!ping"))
    ]
    assert outcomes == ["ignored", "accepted", "accepted"]
    await desk.journal.close()


async def test_where_something_waits_for_words_nobody_has_to_call_us(tmp_path: Path) -> None:
    config = Config(slack=SlackSection(allowed_users=(OWNER,)), agent=AgentSection(mention="mention"))
    desk = Desk(
        tmp_path / "journal.db", config, lambda repo, thread_ts: (repo.name, thread_ts) == ("sample", "1.1")
    )
    replies = [
        posted(channel="C1", ref=ts, user=user, text=text, thread=thread_ts)
        for ts, user, text, thread_ts in (
            ("2.1", OWNER, "yes", "1.1"),
            ("2.2", OWNER, "yes", "1.9"),
            ("2.3", OWNER, "yes", None),
            ("2.4", OWNER, " ", "1.1"),
            ("2.5", "U0MALLORY", "yes", "1.1"),
        )
    ]
    outcomes = [await desk.intake.accept(event) for event in replies]
    assert outcomes == ["accepted", "ignored", "ignored", "ignored", "refused"]
    await desk.journal.close()


async def test_an_empty_message_asks_for_nothing(desk: Desk) -> None:
    assert await desk.intake.accept(message(text="  ")) == "ignored"


async def test_who_is_called_by_name_and_told_nothing_is_reached(desk: Desk) -> None:
    called = posted(channel="C1", ref="1.2", user=OWNER, text="", mentioned=True)
    assert await desk.intake.accept(message(text="run:")) == "accepted"
    assert await desk.intake.accept(called) == "accepted"


async def test_a_command_is_audited_once_and_a_prompt_when_it_has_run(desk: Desk) -> None:
    for _ in range(2):
        await desk.intake.accept(message(text="!stop"))
    await desk.intake.accept(message("1.2", text="stop the server"))
    await desk.intake.accept(message("1.3", user="U0STRANGER", text="!stop"))
    assert desk.books.commands == ["command stop"]
