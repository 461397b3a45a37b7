"""A person talks, edits, deletes and clicks; agents work, fail or hang; Slack loses answers; parent and worker die.

Whatever the order: each message ends in exactly one visible outcome, in order per conversation, nothing is
said twice, and no agent runs twice for a turn.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Coroutine, Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from codebutler.chat.slack.answers import op_id_of
from codebutler.chat.slack.render import REACTIONS
from codebutler.domain.errors import ChatOutcomeUnknownError
from codebutler.domain.model import ButtonClicked, Event, MessagePosted
from codebutler_worker.agents.backend import Finished, Started, ToolUse
from tests.events import clicked, deleted, edited, posted
from tests.ledger import Shown, check, unsettled
from tests.worker_kit import CHANNEL, USER
from tests.world import World

R = TypeVar("R")
LOST = ChatOutcomeUnknownError("time-out")
ROUNDS = 200
MOMENTS = st.integers(min_value=0, max_value=6)
CALLS = st.sampled_from(("post", "update", "react", "history"))
CHOICES = ("codebutler.retry", "codebutler.drop")


class Conversation(RuleBasedStateMachine):
    """Rules are what may happen next; the checks are in ``teardown``."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name))
        self.said: list[MessagePosted] = []
        self.deleted: set[str] = set()
        self.clicked: set[str] = set()
        self.numbers = count(1)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        self.run(self.world.start())

    # -- what people do

    @rule(in_thread=st.booleans(), moments=MOMENTS)
    def post(self, in_thread: bool, moments: int) -> None:
        root = self.said[-1].root if in_thread and self.said else None
        self.run(self.world.accept(self._message(root)))
        self.run(self.world.passes(moments))

    @rule(moments=st.integers(min_value=0, max_value=12))
    def post_to_a_dying_parent(self, moments: int) -> None:
        self.run(self._accept_and_die(self._message(None), moments))

    @precondition(lambda self: self.said)
    @rule(which=st.integers(min_value=0, max_value=50))
    def deliver_again(self, which: int) -> None:
        self.run(self.world.accept(self.said[which % len(self.said)]))

    @precondition(lambda self: self.said)
    @rule(moments=MOMENTS)
    def edit(self, moments: int) -> None:
        last = self.said[-1]
        stamp = f"{next(self.numbers)}"
        text = f"{last.text}, please"
        event = edited(channel=CHANNEL, ref=last.ref, user=USER, text=text, edit=stamp, thread=last.thread)
        self.run(self.world.accept(event))
        self.run(self.world.passes(moments))

    @precondition(lambda self: self.said)
    @rule()
    def delete(self) -> None:
        last = self.said[-1]
        self.deleted.add(last.ref)
        self.run(self.world.accept(deleted(channel=CHANNEL, ref=last.ref, user=USER)))

    @rule(choice=st.sampled_from(CHOICES), moments=MOMENTS)
    def click(self, choice: str, moments: int) -> None:
        if question := self._question():
            self.run(self.world.accept(self._click(*question, choice)))
        self.run(self.world.passes(moments))

    # -- what agents do

    @rule(moments=MOMENTS)
    def agent_works(self, moments: int) -> None:
        for run in self.world.active[:1]:
            run.does(Started(f"session of {run.request.conversation}"), ToolUse("t", "Bash", "make test"))
        self.run(self.world.passes(moments))

    @rule(moments=MOMENTS)
    def agent_finishes(self, moments: int) -> None:
        for run in self.world.active[:1]:
            run.finish("Done.", f"session of {run.request.conversation}")
        self.run(self.world.passes(moments))

    @rule(moments=MOMENTS)
    def agent_fails(self, moments: int) -> None:
        for run in self.world.active[:1]:
            run.does(Finished(False, "The model is away.", "failed"))
        self.run(self.world.passes(moments))

    @rule(moments=MOMENTS)
    def agent_is_refused_by_its_service(self, moments: int) -> None:
        for run in self.world.active[:1]:
            session = Started(f"session of {run.request.conversation}")
            run.does(session, Finished(False, "The service is overloaded.", "overloaded"))
        self.run(self.world.passes(moments))

    # -- what goes wrong

    @rule(method=CALLS, done=st.booleans())
    def lose_an_answer(self, method: str, done: bool) -> None:
        if done:
            self.world.chat.deliver_then_fail(method, LOST)
        else:
            self.world.chat.fail_next(method, LOST)

    @rule(moments=MOMENTS)
    def kill_the_worker(self, moments: int) -> None:
        self.world.kill_worker()
        self.run(self.world.passes(moments))

    @rule(moments=MOMENTS)
    def kill_the_parent(self, moments: int) -> None:
        self.run(self._die(moments))

    # -- how it ends

    def teardown(self) -> None:
        try:
            if self.world.journal is not None:
                self.run(self._wind_up())
                self._check()
        finally:
            self.run(self.world.kill_parent())
            self.loop.close()
            self.folder.cleanup()

    async def _wind_up(self) -> None:
        choices = cycle(CHOICES)
        rounds = count(1)
        while not await self._over():
            assert next(rounds) < ROUNDS, f"no end: {self._question()}, {self._left()}"
            for run in self.world.active:
                run.finish("Done.", f"session of {run.request.conversation}")
            if question := self._undecided():
                await self.world.accept(self._click(*question, next(choices)))
            await self.world.passes(5)

    async def _over(self) -> bool:
        world = self.world
        try:
            await world.until(lambda: bool(world.active or self._undecided()) or self._settled())
        except TimeoutError:
            raise AssertionError(f"no end: {self._left()}") from None
        return self._settled() and not world.active and not self._question()

    def _left(self) -> str:
        world = self.world
        active = [run.request.turn_id for run in world.active]
        errors = [line for books in world.books for line in books.errors]
        return f"{active} {unsettled(world.store)} {errors} {world.chat.messages(CHANNEL)}"

    def _settled(self) -> bool:
        return self.world.quiet and self.world.store.exists() and unsettled(self.world.store) == []

    def _check(self) -> None:
        ours = [
            Shown(message["ts"], op_id_of(message) or "", f"{message['text']}\n{message['blocks']}")
            for message in self.world.chat.messages(CHANNEL)
            if message.get("bot_id")
        ]
        kept = [message.ref for message in self.said if message.ref not in self.deleted]
        check(
            self.world.store,
            ours,
            kept,
            lambda ts: {REACTIONS[mark] for mark in self.world.chat.marks(CHANNEL, ts)},  # type: ignore[index]  # only ours
        )
        turns = Counter(run.request.turn_id for run in self.world.runs)
        assert [turn for turn, times in turns.items() if times > 1] == [], "an agent ran twice for a turn"

    # -- helpers

    def _message(self, root: str | None) -> MessagePosted:
        text = f"task {len(self.said)}"
        ts = self.world.chat.say(CHANNEL, USER, text, thread_ts=root)
        said = posted(channel=CHANNEL, ref=ts, user=USER, text=text, thread=root)
        self.said.append(said)
        return said

    def _question(self) -> tuple[str, str] | None:
        """The first that still has its buttons, one that was answered last."""
        found = self._questions()
        return min(found, key=lambda question: question[1] in self.clicked, default=None)

    def _questions(self) -> Iterator[tuple[str, str]]:
        for message in self.world.chat.messages(CHANNEL):
            for block in message.get("blocks", ()):
                for element in block.get("elements", ()):
                    if element.get("action_id") == "codebutler.drop":
                        yield message["ts"], element["value"]

    def _undecided(self) -> tuple[str, str] | None:
        """A question that nobody has answered: an edit that shows the decision may still be on its way."""
        question = self._question()
        return question if question and question[1] not in self.clicked else None

    def _click(self, ts: str, value: str, choice: str) -> ButtonClicked:
        self.clicked.add(value)
        stamp = f"{next(self.numbers)}"
        return clicked(channel=CHANNEL, user=USER, message=ts, action_id=choice, value=value, press=stamp)

    async def _accept_and_die(self, event: Event, moments: int) -> None:
        self.world.unacknowledged.append(event)
        accepting = asyncio.create_task(self.world.accept(event))
        for _ in range(moments):
            await asyncio.sleep(0)
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)
        await self._die(0)

    async def _die(self, moments: int) -> None:
        await self.world.kill_parent()
        await self.world.start()
        await self.world.passes(moments)


TestConversation = Conversation.TestCase
TestConversation.settings = settings(
    max_examples=25,
    stateful_step_count=16,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
