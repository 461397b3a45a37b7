"""What a worker can make the parent say, and to whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from codebutler.chat.chats import Chats, ServedChat, StatusBoard
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.listeners import Listeners
from codebutler.chat.people import People, Person
from codebutler.chat.slack.render import rendered
from codebutler.config.chats import SlackSection, TelegramSection
from codebutler.config.paths import Home
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.errors import ChatError
from codebutler.domain.message import Message, said
from codebutler.domain.model import Post, Update
from codebutler.intake.direct import DirectThreads
from codebutler.intake.journal import Journal
from codebutler.intake.records import OwnNotes
from codebutler.intake.repos import Repos, RepoTable
from codebutler.observe.audit import AuditLog
from codebutler.observe.logs import Logs
from codebutler.parent.parts import Given, LatestTurns, Parts, Signals
from codebutler.parent.services import ParentServices
from codebutler.parent.spending import Ledgers, Spending
from codebutler.platform.backups import Restored
from codebutler.platform.processes import Descriptors
from codebutler.platform.signals import Stopping
from codebutler.platform.tasks import Tasks, beside
from codebutler.protocol.messages import Budget, DayUse, Doing, Live, TurnEnded
from codebutler.schedule.files import ToldJobs
from codebutler.text.markup import message_link, person
from codebutler.text.redact import Redactor
from tests.clock import ManualClock, settle
from tests.memory_chat import MemoryChat
from tests.shown import blocks_of, text_of

REPO = RepoSettings(
    name="sample",
    path="/nowhere",
    channel_id="C1",
    config=Config(slack=SlackSection(allowed_users=("U0ANA",))),
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def same(text: str) -> str:
    return text


class Known:
    """A workspace in which Ana has a name of her own choice."""

    async def person(self, user: str) -> Person:
        return Person(id=user, names=("Ana <!here> & co",))


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
async def desk(tmp_path: Path, heard: list[str]) -> AsyncIterator[tuple[ParentServices, MemoryChat]]:
    clock, chat = ManualClock(), MemoryChat()
    async with AsyncExitStack() as stack:
        journal = Journal.open(tmp_path / "journal.db", clock)
        stack.push_async_callback(journal.close)
        book = DirectThreads(journal)
        await book.place("C1", "D1", ("1234567890.000001",))
        people = People(clock)
        people.meet(["U0ANA"])
        sender = await stack.enter_async_context(
            Sender(chat, clock, Editor(same, people.called, book.where), direct=book, notes=journal)
        )
        statuses = await stack.enter_async_context(
            StatusBoard(chat.capabilities.status_line, clock, lambda text: text.replace("key", "[redacted]"))
        )
        await stack.enter_async_context(beside(people.run({"Slack": Known().person}), name="people"))
        await settle()
        signals = Signals()
        repos = Repos(RepoTable(()), lambda: book.channels)
        logs = stack.enter_context(Logs(None, "info", same, stream=None))
        parts = Parts(
            given=Given(Home(tmp_path), {}, Config(), clock, Descriptors(1024, 1024), Stopping()),
            signals=signals,
            clock=clock,
            people=people,
            redactor=Redactor(),
            hosted_runs=None,
            logs=logs,
            journal=journal,
            restored=None,
            audit=stack.enter_context(AuditLog(tmp_path / "audit.jsonl", clock, same)),
            tasks=Tasks(lambda name, error: None),
            direct=book,
            repos=repos,
            spending=Spending(lambda: repos.table, clock, logs.record),
            ledgers=Ledgers(lambda: repos.table, clock, logs.record),
            turns=LatestTurns(journal, signals.changed.tell),
            listeners=Listeners(),
            notes=journal,
            told_jobs=ToldJobs(journal),
        )
        slack = ServedChat(name="Slack", chat=chat, sender=sender, statuses=statuses)
        other = MemoryChat(lacks=("history", "look_up"))
        way = await stack.enter_async_context(
            Sender(other, clock, Editor(same), notes=OwnNotes(journal, "Telegram"))
        )
        telegram = ServedChat(
            name="Telegram", chat=other, sender=way, statuses=StatusBoard(None, clock, same)
        )
        services = ParentServices(parts, Chats([slack, telegram]))
        signals.interrupted.add(heard.append)
        signals.changed.add(lambda: heard.append(parts.budgets.words(REPO.name, NOW)))
        yield services, chat


async def test_people_are_told_of_by_name_and_called_by_none(
    desk: tuple[ParentServices, MemoryChat],
) -> None:
    services, chat = desk
    told = f"Stopped by {person('U0ANA')}, not {person('U0BOB')}."
    await services.send(REPO, "1", Post(message=said(told)), unsure=False)
    agents = Message(markdown="write `<@U0ANA>` [x](person:U0ANA)", is_foreign=True)
    await services.send(REPO, "2", Post(message=agents), unsure=False)
    own, foreign = (done.operation for done in chat.done)
    assert isinstance(own, Post)
    assert isinstance(foreign, Post)
    assert text_of(own) == "Stopped by Ana &lt;\u200b!here&gt; &amp; co, not U0BOB."
    assert blocks_of(foreign)[0]["text"] == "write `<\u200b@U0ANA>` [x](person:U0ANA)"


async def test_the_asker_is_called_and_nobody_else(desk: tuple[ParentServices, MemoryChat]) -> None:
    services, chat = desk
    await services.send(
        REPO, "1", Post(message=said("done, <@U0BOB> <!channel>"), mention="U0ANA"), unsure=False
    )
    await services.send(REPO, "2", Post(message=said("done"), mention="U0BOB"), unsure=False)
    first, second = (done.operation for done in chat.done)
    assert isinstance(first, Post)
    assert rendered(first.message, first.mention)[0].startswith("<@U0ANA> done")
    assert "<@" not in text_of(first)
    assert "<!" not in text_of(first)
    assert second == Post(message=said("done"))


@pytest.mark.parametrize("whose", ["U0BOB", "operator", "tg:-1001000000002", "tg:222"])
async def test_a_worker_tells_nothing_privately_to_who_may_not_talk_to_it(
    desk: tuple[ParentServices, MemoryChat], whose: str
) -> None:
    """Telegram has no messages for one person in a group, so they go to the chat of that number: a group's, too."""
    services, chat = desk
    await services.send(REPO, "1", Post(message=said("psst"), only_for="U0ANA"), unsure=False)
    with pytest.raises(ChatError):
        await services.send(REPO, "2", Post(message=said("psst"), only_for=whose), unsure=False)
    assert len(chat.done) == 1


async def test_what_is_about_a_direct_message_is_said_there_and_nothing_else(
    desk: tuple[ParentServices, MemoryChat],
) -> None:
    services, chat = desk
    direct = chat.say("D1", "U0ANA", "work", ts="1234567890.000001")
    link = message_link("C1", direct, "yours")
    answer = await services.send(REPO, "1", Post(message=said(f"see {link}"), thread=direct), unsure=False)
    await services.send(REPO, "2", Update(target=answer, message=said(f"done {link}")), unsure=False)
    assert "/archives/D1/p1234567890000001|yours>" in chat.texts("D1")[0]
    assert chat.texts("D1")[0].startswith("done")
    services.show(REPO, Doing(thread=direct, text="is working"))
    await chat.until(lambda: bool(chat.statuses))
    assert ("D1", direct) in chat.statuses
    other = chat.say("D2", "U0BOB", "a conversation of somebody else's")
    with pytest.raises(ChatError):
        await services.send(REPO, "3", Post(message=said("psst"), thread=other), unsure=False)
    assert chat.texts("D2") == []


async def test_what_is_done_is_shown_harmlessly(desk: tuple[ParentServices, MemoryChat]) -> None:
    services, chat = desk
    ts = chat.say("C1", "U0ANA", "work")
    services.show(REPO, Doing(thread=ts, text="is working: make 2>&1 <!channel> key"))
    await chat.until(lambda: bool(chat.statuses))
    shown = chat.statuses["C1", ts]
    assert shown.startswith("is working: make 2>&1 <")
    assert "<!channel>" not in shown
    assert shown.endswith("[redacted]")


async def test_what_an_agent_writes_is_streamed_in_a_direct_conversation_only(
    desk: tuple[ParentServices, MemoryChat],
) -> None:
    services, chat = desk
    direct = chat.say("D1", "U0ANA", "work", ts="1234567890.000001")
    here = chat.say("C1", "U0ANA", "work")
    for thread_ts in (here, direct):
        services.show(REPO, Live(thread=thread_ts, kind="tool", text="ls"))
        services.show(REPO, Live(thread=thread_ts, kind="writing", text="It is all f"))
    async with asyncio.timeout(30):
        await chat.until(lambda: bool(chat.streaming))
    assert chat.texts("D1") == ["It is all"]
    assert chat.texts("C1") == []
    done = Post(message=said("It is all fine."), thread=direct, in_place=True)
    (streamed,) = chat.streaming
    assert await services.send(REPO, "1", done, unsure=False) == streamed
    assert chat.texts("D1") == ["It is all fine."]


@pytest.mark.parametrize("how", ["no words", "interrupted"])
async def test_a_turn_that_ends_without_an_answer_leaves_no_stream(
    desk: tuple[ParentServices, MemoryChat], heard: list[str], how: str
) -> None:
    services, chat = desk
    direct = chat.say("D1", "U0ANA", "work", ts="1234567890.000001")
    services.show(REPO, Live(thread=direct, kind="writing", text="It is all f"))
    async with asyncio.timeout(30):
        await chat.until(lambda: bool(chat.streaming))
        await services.send(REPO, "1", Post(message=said("That failed."), thread=direct), unsure=False)
        if how == "no words":
            services.show(REPO, Doing(thread=direct, text=""))
        else:
            lost = TurnEnded(op_id="2", thread=direct, messages=(direct,), outcome="interrupted")
            await services.turn_ended(REPO, lost)
            assert heard == ["C1"]
        await chat.until(lambda: chat.texts("D1") == ["That failed."])


async def test_what_is_used_is_kept_and_app_home_hears_of_it(
    desk: tuple[ParentServices, MemoryChat], heard: list[str]
) -> None:
    services, _ = desk
    services.show(REPO, Budget(until="2026-01-02T00:00:00+00:00", used=DayUse(runs=2, usd=0.5)))
    assert heard == ["2 runs, $0.50"]


async def test_after_a_backup_each_chat_is_told_what_it_can_do(
    desk: tuple[ParentServices, MemoryChat], tmp_path: Path
) -> None:
    """One that has no history cannot fetch what is gone."""
    services, slack = desk
    telegram = services._chats.of("tg:-1001").chat
    assert isinstance(telegram, MemoryChat)
    services.restored(Restored(tmp_path, "it was damaged", NOW, None), ("C1", "tg:-1001"))
    async with asyncio.timeout(20):
        await slack.until(lambda: bool(slack.texts("C1")))
        await telegram.until(lambda: bool(telegram.texts("tg:-1001")))
    assert "again from the channel's history" in slack.texts("C1")[0]
    assert "resend messages since then" in telegram.texts("tg:-1001")[0]


async def test_a_worker_speaks_in_the_chat_of_its_repository(desk: tuple[ParentServices, MemoryChat]) -> None:
    services, slack = desk
    telegram = services._chats.of("tg:-1001").chat
    assert isinstance(telegram, MemoryChat)
    config = Config(telegram=TelegramSection(chat_id=-1001, allowed_users=(111,)))
    repo = msgspec.structs.replace(REPO, channel_id="tg:-1001", config=config)
    for mention in ("tg:111", "U0ANA"):
        await services.send(repo, mention, Post(message=said("hello"), mention=mention), unsure=False)
    assert slack.done == []
    assert [done.channel for done in telegram.done] == ["tg:-1001"] * 2
    called = [done.operation.mention for done in telegram.done if isinstance(done.operation, Post)]
    assert called == ["tg:111", ""], "somebody of another chat is called by nobody"
    services.show(repo, Doing(thread="1", text="is working"))
    await settle()
    assert slack.statuses == {}
