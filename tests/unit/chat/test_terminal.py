"""A terminal's chat as the supervisor holds it: what goes in, what comes out, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

from codebutler.chat.listeners import Listeners
from codebutler.chat.port import HistoryPage
from codebutler.chat.slack.answers import operation_metadata
from codebutler.chat.slack.history import history_message
from codebutler.chat.terminal import Chat, Speaker
from codebutler.config.chats import SlackSection
from codebutler.config.registry import RepoEntry
from codebutler.config.schema import Config
from codebutler.domain.errors import ChatError, CodeButlerError
from codebutler.domain.message import said
from codebutler.domain.model import (
    OPERATOR,
    ButtonClicked,
    Event,
    MessagePosted,
    NoRequest,
    Operation,
    Origin,
    Post,
    Update,
)
from codebutler.domain.refs import ConversationRef
from codebutler.intake.intake import Outcome
from codebutler.intake.records import Entry
from codebutler.intake.repos import Served
from codebutler.protocol.control import (
    ChatInput,
    ChatOpened,
    ChatRequest,
    Choice,
    ControlReply,
    Ended,
    Heard,
    Past,
    Posted,
    Press,
    Said,
    Say,
    Working,
)
from codebutler.protocol.messages import Live
from tests.clock import ManualClock
from tests.dispatching import dispatcher
from tests.events import posted

C1 = ConversationRef("C1")
SERVED = Served(
    entry=RepoEntry(name="shop", path="/srv/shop"),
    config=Config(slack=SlackSection(channel_id="C1")),
    notes=(),
    trusted=True,
)

ALLOW = {
    "type": "button",
    "text": {"type": "plain_text", "text": "Allow"},
    "action_id": "codebutler.allow",
    "value": "a1",
}
OVERHEARD: tuple[tuple[str | None, str, Origin], ...] = (
    ("1.0", "U1", "chat"),
    ("0.1", "U2", "chat"),
    (None, "U3", "chat"),
    ("1.0", OPERATOR, "local"),
)


def entry(thread_ts: str | None, user: str, origin: Origin) -> Entry:
    """Something that was let in."""
    event = posted(channel="C1", ref="9.0", user=user, text="me too", thread=thread_ts, origin=origin)
    return Entry(
        seq=1, channel="C1", event=event, request=NoRequest(), received_at=datetime(2026, 1, 1, tzinfo=UTC)
    )


class Around:
    """Slack, the intake and the supervisor, as far as a chat meets them."""

    def __init__(self) -> None:
        self.wrong = ""
        self.problem = ""
        self.outcome: Outcome = "accepted"
        self.refusal: ChatError | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.said: list[tuple[str, Operation]] = []
        self.taken: list[Event] = []
        self.routed: list[Entry] = []
        self.messages: tuple[dict[str, Any], ...] = ()

    def trouble(self, channel: str) -> str:
        assert channel == "C1"
        return self.wrong

    async def submit(self, channel: str, op_id: str, operation: Operation, *, unsure: bool) -> str:
        assert op_id
        assert not unsure
        await self.open.wait()
        if self.refusal is not None:
            raise self.refusal
        self.said.append((channel, operation))
        return f"{len(self.said)}.0"

    async def history(
        self, channel: str, *, thread: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> HistoryPage:
        assert (channel, thread, since_s) == ("C1", "0.5", 0.0)
        if self.refusal is not None:
            raise self.refusal
        at = int(cursor or 0)
        return HistoryPage(
            messages=tuple(map(history_message, self.messages[at : at + 2])),
            next_cursor=str(at + 2) if at < 4 else "",
        )

    async def accept(self, event: Event) -> Outcome:
        self.taken.append(event)
        return self.outcome

    def down(self, name: str) -> str:
        assert name == "shop"
        return self.problem


class Terminal:
    """The other side: ``given``, and ``hear`` what comes of it."""

    def __init__(self, around: Around, request: ChatRequest, patience_s: float = 3600) -> None:
        self.listeners = Listeners(redact=lambda text: text.replace("hunter2", "[redacted]"))
        self._inputs: asyncio.Queue[ChatInput | None] = asyncio.Queue()
        speaker = Speaker(around.accept, around, around.down, ManualClock())
        chat = Chat(SERVED, request, speaker, self.listeners, patience_s=patience_s)
        self.replies = chat.replies(self._inputs_from())

    async def _inputs_from(self) -> AsyncIterator[ChatInput]:
        while (given := await self._inputs.get()) is not None:
            yield given

    def given(self, given: ChatInput | None) -> None:
        self._inputs.put_nowait(given)

    def tell(self, operation: Operation, ref: str, channel: ConversationRef = C1) -> None:
        for listener in self.listeners.followers.get(channel, ()):
            listener.delivered(operation, ref)

    async def hear(self, count: int) -> list[ControlReply]:
        async with asyncio.timeout(30):
            return [await anext(self.replies) for _ in range(count)]


@pytest.fixture
def around() -> Around:
    return Around()


async def test_what_is_said_goes_to_the_channel_and_through_the_door(around: Around) -> None:
    terminal = Terminal(around, ChatRequest(repo="shop"))
    async with aclosing(terminal.replies):
        terminal.given(Say(text="fix <it>"))
        terminal.given(Say(text="!ping"))
        assert await terminal.hear(3) == [
            ChatOpened(repo="shop", agent="claude"),
            Posted(channel="C1", ref="1.0", thread="1.0"),
            Posted(channel="C1", ref="2.0", thread="1.0"),
        ]
        assert around.said == [
            ("C1", Post(message=said("**operator:** fix \\<it>"))),
            ("C1", Post(message=said("**operator:** !ping"), thread="1.0")),
        ]
        assert [(e.text, e.origin) for e in around.taken if isinstance(e, MessagePosted)] == [
            ("fix <it>", "local"),
            ("!ping", "local"),
        ]
        terminal.tell(Post(message=said("pong"), thread="1.0"), "3.0")
        terminal.tell(Post(message=said("of another thread"), thread="0.1"), "3.1")
        terminal.tell(
            Post(message=said("of another channel"), thread="1.0"), "3.2", channel=ConversationRef("C2")
        )
        for listener in terminal.listeners.followers[C1]:
            listener.started(("2.0",))
        await terminal.listeners.ended("C1", ("2.0",), "done")
        listeners = terminal.listeners
        dispatch = dispatcher(
            around.routed.append, followed=listeners.followers, notify=listeners.notify
        ).dispatch
        for thread_ts, user, origin in OVERHEARD:
            dispatch(entry(thread_ts, user, origin))
        assert len(around.routed) == len(OVERHEARD)
        for listener in terminal.listeners.followers[C1]:
            listener.live(Live(thread="1.0", kind="tool", text="🔧 ls"))
            listener.live(Live(thread="0.1", kind="tool", text="🔧 elsewhere"))
        await terminal.listeners.ended("C1", ("1.0", "7.0"), "stopped")
        assert await terminal.hear(6) == [
            Said(text="pong", ref="3.0"),
            Working(ref="2.0"),
            Ended(ref="2.0", outcome="done"),
            Past(who="U1", text="me too"),
            Heard(kind="tool", text="🔧 ls"),
            Ended(ref="1.0", outcome="stopped"),
        ]
        terminal.given(None)
        with pytest.raises(StopAsyncIteration):
            await terminal.hear(1)


async def test_a_press_is_the_operators(around: Around) -> None:
    terminal = Terminal(around, ChatRequest(repo="shop", thread="0.5"))
    async with aclosing(terminal.replies):
        await terminal.hear(1)
        for _ in range(2):
            terminal.given(Press(ref="7.000001", action_id="codebutler.allow", value="a1", picked=("a1:0",)))
        terminal.given(Press(ref="7.000001", action_id="codebutler.deny_reason", value="a1"))
        (told,) = await terminal.hear(1)
        assert isinstance(told, Said)
        assert told.text.startswith("⚠️")
        clicks = [event for event in around.taken if isinstance(event, ButtonClicked)]
        assert {(c.user, c.origin, c.thread, c.picked) for c in clicks} == {
            (OPERATOR, "local", "0.5", ("a1:0",))
        }
        assert len({click.key for click in clicks}) == 2


async def test_what_gets_nowhere_is_told_and_waits_for_nothing(around: Around) -> None:
    terminal = Terminal(around, ChatRequest(repo="shop"))
    async with aclosing(terminal.replies):
        await terminal.hear(1)
        around.refusal = ChatError(code="is_archived")
        terminal.given(Say(text="one"))
        ended, told = await terminal.hear(2)
        assert ended == Ended(ref="", outcome="failed")
        assert isinstance(told, Said)
        assert "Slack refused the message" in told.text
        around.refusal, around.outcome = None, "refused"
        terminal.given(Say(text="two"))
        assert [type(reply) for reply in await terminal.hear(3)] == [Posted, Ended, Said]
        around.outcome, around.problem = "accepted", "exit code 78"
        terminal.given(Say(text="three"))
        *_, told = await terminal.hear(3)
        assert isinstance(told, Said)
        assert "(exit code 78); your message is kept until it is" in told.text


async def test_a_slack_that_keeps_us_waiting_is_told(around: Around) -> None:
    around.open.clear()
    around.wrong = "Slack refuses the token"
    terminal = Terminal(around, ChatRequest(repo="shop"), patience_s=0)
    async with aclosing(terminal.replies):
        terminal.given(Say(text="hello"))
        _, told = await terminal.hear(2)
        assert told == Said(text="⏳ Slack refuses the token; your message is sent as soon as possible.")
        around.open.set()
        assert await terminal.hear(1) == [Posted(channel="C1", ref="1.0", thread="1.0")]


async def test_a_chat_that_goes_on_begins_with_its_past(around: Around) -> None:
    ours = operation_metadata("op")
    around.messages = (
        {"text": "*operator:* a &lt; b", "metadata": ours},
        {"text": "✅ Done · 1 tool call", "metadata": ours},
        {"text": "❌ 3s · 1 tool call", "metadata": ours},
        {"text": "it is hunter2", "metadata": ours},
        {"text": "*operator:* I am not", "user": "U1"},
        {
            "text": "Leave?",
            "ts": "0.7",
            "metadata": ours,
            "blocks": [{"type": "actions", "elements": [ALLOW]}],
        },
    )
    terminal = Terminal(around, ChatRequest(repo="shop", thread="0.5", past=9))
    async with aclosing(terminal.replies):
        assert await terminal.hear(5) == [
            Past(who="operator", text="a < b"),
            Past(who="", text="it is [redacted]"),
            Past(who="U1", text="*operator:* I am not"),
            Said(
                text="Leave?",
                kind="card",
                ref="0.7",
                choices=(Choice(label="Allow", action_id="codebutler.allow", value="a1"),),
            ),
            ChatOpened(repo="shop", agent="claude", thread="0.5"),
        ]
        # The card is decided elsewhere: it is known here.
        terminal.tell(Update(target="0.7", message=said("Leave? Allowed.")), "")
        assert await terminal.hear(1) == [Said(text="Leave? Allowed.", kind="card", ref="0.7")]
    around.refusal = ChatError(code="thread_not_found")
    without = Terminal(around, ChatRequest(repo="shop", thread="0.5", past=9))
    async with aclosing(without.replies):
        assert await without.hear(1) == [ChatOpened(repo="shop", agent="claude", thread="0.5")]


async def test_a_wish_that_cannot_be_read_ends_the_chat(around: Around) -> None:
    async def broken() -> AsyncIterator[ChatInput]:
        raise CodeButlerError("unreadable wish")
        yield Say(text="")

    speaker = Speaker(around.accept, around, around.down, ManualClock())
    chat = Chat(SERVED, ChatRequest(repo="shop"), speaker, Listeners())
    with pytest.raises(CodeButlerError, match="unreadable wish"):
        async with asyncio.timeout(30):
            _ = [reply async for reply in chat.replies(broken())]
