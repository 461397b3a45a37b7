"""Direct messages through the door, the journal and the dispatcher's step, to a worker or to an answer of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.chat.chats import Chats, ServedChat, StatusBoard
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.config.chats import SlackSection
from codebutler.config.permission import Decision
from codebutler.config.schema import AuthorizationRule, AuthorizationSection, Config
from codebutler.domain.errors import ChatUnreachableError
from codebutler.domain.message import REPO_ACTION
from codebutler.domain.model import (
    ButtonClicked,
    Command,
    Event,
    File,
    MessagePosted,
    Prompt,
    React,
    Request,
    TurnNote,
)
from codebutler.intake.direct import DirectReader, DirectThreads
from codebutler.intake.intake import Intake, Outcome, Threads
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.intake.repos import Repo
from codebutler.observe.chain import act_of
from codebutler.parent.apphome_page import RepoCard
from codebutler.parent.direct import DirectMessages, DirectSources
from codebutler.platform.tasks import Tasks
from tests.clock import ManualClock, settle
from tests.events import clicked, deleted, edited, posted, slashed
from tests.memory_chat import MemoryChat
from tests.notes import Notes

OWNER, D = "U0OWNER", "D1"
RULES = AuthorizationSection(
    rules=(AuthorizationRule(channels=("C2",), users=(OWNER,), allowed_prefixes=("claude",)),)
)


def repo(name: str, channel: str, authorization: AuthorizationSection | None = None) -> Repo:
    slack = SlackSection(channel_id=channel, allowed_users=(OWNER,))
    return Repo(name, Config(slack=slack, authorization=authorization or AuthorizationSection()))


ALPHA, BETA = repo("alpha", "C1"), repo("beta", "C2", RULES)


class House:
    """One life of a parent; the workspace and the journal's file outlive it."""

    def __init__(self, root: Path, *repos: Repo) -> None:
        self.chat = MemoryChat()
        self.clock = ManualClock()
        self.repos = {each.config.slack.channel_id: each for each in repos}
        self.routed: list[Entry] = []
        self.refusals: list[tuple[str, bool]] = []
        self.down: dict[str, str] = {}
        self.commands: list[str] = []
        self._path = root / "journal.db"
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        self.routed.clear()
        self.journal = await self._stack.enter_async_context(Journal.open(self._path, self.clock))
        book = DirectThreads(self.journal)
        await book.load()
        self.sender = await self._stack.enter_async_context(
            Sender(self.chat, self.clock, Editor(str), Notes(), direct=book)
        )
        statuses = StatusBoard(None, self.clock, str)
        slack = ServedChat(name="Slack", chat=self.chat, sender=self.sender, statuses=statuses)
        self.tasks = Tasks(lambda name, error: self.commands.append(f"{name}: {error!r}"))
        sources = DirectSources(book, self.repos, self.cards, lambda name: self.down.get(name, ""), self)
        direct = DirectMessages(sources, Chats([slack]), self.journal, self.tasks, self.clock)
        self.intake = Intake(
            repos=self.repos,
            journal=self.journal,
            dispatch=lambda entry: direct.take(entry, self.routed.append),
            refusals=self,
            clock=self.clock,
            threads=Threads(direct=DirectReader(book, self.repos)),
        )
        await self.intake.resume()
        await self.quiet()

    async def stop(self) -> None:
        await self._stack.aclose()

    async def accept(self, event: Event) -> str:
        outcome = await self.intake.accept(event)
        await self.quiet()
        return outcome

    async def quiet(self) -> None:
        while self.tasks._running:
            await self.clock.advance(1)
            await settle()

    def cards(self, user: str) -> list[RepoCard]:
        note = TurnNote(state="waiting", thread="5.000005", text="deploy it", agent="claude", at="2026-01-01")
        return [RepoCard("alpha", "C1", "running", (note,)), RepoCard("beta", "C2", "sleeping")]

    def refused(self, event: Event, request: Request, decision: Decision, *, tell: bool) -> None:
        self.refusals.append((f"{act_of(event, request, decision.reason).kind}: {decision.reason}", tell))

    def commanded(self, event: Event, request: Request) -> None:
        self.commands.append(act_of(event, request, "").kind)

    def counted(self, outcome: Outcome, seconds: float) -> None:
        pass

    def no_space(self, event: Event) -> None:
        raise AssertionError("there is room")

    def say(self, text: str, thread_ts: str | None = None, *files: File) -> MessagePosted:
        ts = self.chat.say(D, OWNER, text, thread_ts=thread_ts)
        return posted(channel=D, ref=ts, user=OWNER, text=text, thread=thread_ts, files=files)

    def press(self, root: str, name: str) -> ButtonClicked:
        ours = [each for each in self.chat.messages(D) if each["user"] == self.chat.me.user_id]
        card = ours[-1]["ts"] if ours else "1.000001"
        return clicked(
            channel=D,
            user=OWNER,
            message=card,
            action_id=REPO_ACTION,
            value=name,
            press="9.1",
            thread=root,
        )

    @property
    def reached(self) -> list[tuple[str, object]]:
        """What came to which worker."""
        return [(entry.channel, entry.request) for entry in self.routed]


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path, ALPHA)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path, ALPHA, BETA)
    await made.start()
    yield made
    await made.stop()


async def test_with_one_repository_everything_goes_there(one: House) -> None:
    first = one.say("explain this")
    assert await one.accept(first) == "accepted"
    assert await one.accept(one.say("and that", first.ref)) == "accepted"
    assert await one.accept(one.say("status")) == "accepted"
    assert one.reached == [
        ("C1", Prompt(text="explain this")),
        ("C1", Prompt(text="and that")),
        ("C1", Command(name="status")),
    ]
    assert all(entry.event.channel == "C1" and entry.event.mentioned for entry in one.routed)  # type: ignore[union-attr]
    assert await one.accept(first) == "duplicate"
    assert await one.accept(one.say("", first.ref)) == "accepted"
    assert one.reached[-1] == ("C1", Prompt(text=""))  # its worker asks what is wanted


async def test_of_two_it_is_asked_which_and_what_was_said_meanwhile_goes_there_in_order(two: House) -> None:
    first = two.say("explain this")
    await two.accept(first)
    assert "Which repository" in two.chat.texts(D)[0]
    await two.accept(two.say("quickly", first.ref))
    edit = edited(channel=D, ref=first.ref, user=OWNER, text="explain that", edit="8.1")
    await two.accept(edit)
    assert two.routed == []
    assert len(two.chat.texts(D)) == 1
    await two.accept(two.press(first.ref, "alpha"))
    assert [request for _, request in two.reached] == [
        Prompt(text="explain this"),
        Prompt(text="quickly"),
        Prompt(text="explain that"),
    ]
    assert two.chat.texts(D) == ["Repository: *alpha*. Everything in this thread goes there."]
    await two.accept(two.say("more", first.ref))
    assert two.reached[-1] == ("C1", Prompt(text="more"))
    assert "button codebutler.repo" in two.commands


async def test_what_waits_outlives_the_parent_and_is_asked_once(two: House) -> None:
    first = two.say("explain this")
    await two.accept(first)
    await two.stop()
    await two.clock.advance(60)
    await two.start()
    assert len(two.chat.texts(D)) == 1
    await two.accept(two.press(first.ref, "beta"))
    assert two.reached == [("C2", Prompt(text="explain this"))]


async def test_a_choice_outlives_a_parent_that_died_on_it(two: House) -> None:
    first = two.say("explain this")
    await two.accept(first)
    await two.accept(two.press(first.ref, "alpha"))
    await two.stop()
    await two.start()
    assert two.reached == [("C1", Prompt(text="explain this"))]


async def test_a_repository_is_named_at_once_or_in_the_thread(two: House) -> None:
    await two.accept(two.say("Alpha: explain this"))
    await two.accept(two.say("claude: explain that"))
    second = two.chat.messages(D)[-2]["ts"]
    await two.accept(two.say("beta", second))
    await two.accept(two.say("run: make", second))
    assert two.reached == [
        ("C1", Prompt(text="explain this")),
        ("C2", Prompt(text="explain that", prefix="claude")),
    ]
    # The rules of its channel hold here too.
    assert two.refusals == [("prompt run: no rule allows it", True)]


async def test_an_edit_names_the_repository_too(two: House) -> None:
    first = two.say("explain this")
    await two.accept(first)
    edit = edited(channel=D, ref=first.ref, user=OWNER, text="beta: explain that", edit="8.1")
    await two.accept(edit)
    assert two.reached == [("C2", Prompt(text="explain this")), ("C2", Prompt(text="explain that"))]
    assert two.chat.texts(D) == ["Repository: *beta*. Everything in this thread goes there."]


async def test_the_repository_of_the_last_time_is_offered_first(two: House) -> None:
    offers = []
    for text in ("beta: explain this", "explain that", "alpha: explain this", "explain that"):
        await two.accept(two.say(text))
        last = two.chat.messages(D)[-1]
        rows = [
            block["elements"][0]["value"] for block in last.get("blocks", ()) if block["type"] == "actions"
        ]
        offers.append(rows)
    assert offers == [[], ["beta", "alpha"], [], ["alpha", "beta"]]


async def test_files_come_with_the_message(two: House) -> None:
    event = two.say("alpha: see this", None, File(id="F1", name="a.txt"))
    await two.accept(event)
    assert two.routed[0].event.files == (File(id="F1", name="a.txt"),)  # type: ignore[union-attr]


async def test_what_waited_can_be_answered_where_it_stands(two: House) -> None:
    first = two.say("explain this")
    await two.accept(first)
    second = two.say("and this", first.ref, File(id="F1", name="a.txt"))
    await two.accept(second)
    await two.accept(two.press(first.ref, "alpha"))
    assert await two.sender.submit("C1", "op-1", React(target=second.ref, mark="working")) == ""
    assert two.chat.marks(D, second.ref) == {"working"}
    await two.stop()
    await two.start()
    assert two.sender.where("C1", "F1") == D


async def test_words_about_all_repositories_are_answered_here(two: House) -> None:
    for text, part in (("help", "ask which"), ("Status?", "💤"), ("!list", "deploy it")):
        await two.accept(two.say(text))
        assert part in two.chat.texts(D)[-1]
    await two.accept(two.say("!stauts"))
    assert "Did you mean `!status`?" in two.chat.texts(D)[-1]
    await two.accept(slashed(channel=D, user=OWNER, command="/butler", text="stop", invocation="1"))
    assert two.routed == []
    assert await two.journal.pending() == []


async def test_other_words_concern_one_repository(two: House) -> None:
    first = two.say("!stop")
    await two.accept(first)
    await two.accept(two.press(first.ref, "alpha"))
    assert two.reached == [("C1", Command(name="stop"))]
    assert "command stop" in two.commands


async def test_a_stranger_is_told_once(two: House) -> None:
    for number in (1, 2):
        event = posted(channel=D, ref=f"{number}.1", user="U0MALLORY", text="hello")
        assert await two.accept(event) == "refused"
    assert two.refusals == [("prompt: not in allowedUsers", True), ("prompt: not in allowedUsers", False)]
    press = clicked(
        channel=D, user="U0MALLORY", message="1.1", action_id=REPO_ACTION, value="alpha", press="2"
    )
    assert await two.accept(press) == "refused"
    assert two.routed == []


async def test_a_repository_that_is_gone_is_asked_for_anew(two: House) -> None:
    first = two.say("alpha: explain this")
    await two.accept(first)
    del two.repos["C1"]
    await two.accept(two.say("go on", first.ref))
    assert two.reached[-1] == ("C2", Prompt(text="go on"))


async def test_what_is_expired_or_unknown_is_not_taken(two: House) -> None:
    first = two.say("explain this")
    await two.accept(first)
    lost = two.press("3.1", "alpha")
    assert await two.accept(two.press(first.ref, "gone")) == "ignored"
    assert await two.accept(replace(lost, action_id="codebutler.allow")) == "ignored"
    assert await two.accept(deleted(channel=D, ref="7.1", user=OWNER)) == "accepted"
    assert two.routed == []
    assert [entry.event for entry in await two.journal.pending()] == [first]


async def test_a_question_that_nobody_answers_is_given_up_after_a_week(two: House) -> None:
    await two.accept(two.say("explain this"))
    await two.stop()
    await two.clock.advance(8 * 86400)
    await two.start()
    assert await two.journal.pending() == []
    assert two.routed == []


async def test_whose_worker_stays_down_is_told_in_the_thread_once(one: House) -> None:
    one.down["alpha"] = "it keeps failing"
    first = one.say("explain this")
    await one.accept(first)
    await one.accept(one.say("and that", first.ref))
    assert len(one.reached) == 2
    assert ["cannot answer now" in text for text in one.chat.texts(D)] == [True]


async def test_a_private_chat_that_is_a_repositorys_own_is_about_no_other(tmp_path: Path) -> None:
    made = House(tmp_path, ALPHA, repo("mine", D))
    await made.start()
    assert await made.accept(made.say("explain this")) == "accepted"
    assert made.reached == [(D, Prompt(text="explain this"))]
    await made.stop()


async def test_an_answer_that_was_not_sent_before_the_end_is_sent_by_the_next_life(one: House) -> None:
    one.chat.fail_next("post", ChatUnreachableError("down"), times=100)
    await one.intake.accept(one.say("help"))
    await settle()
    await one.stop()
    while one.tasks._running:
        await settle()
    assert one.chat.texts(D) == []
    one.chat.heal()
    await one.start()
    [answer] = one.chat.texts(D)
    assert "works on it" in answer
