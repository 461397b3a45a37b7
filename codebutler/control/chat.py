"""One terminal's chat with one repository: wishes in, everything its thread says out, in one order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol
from uuid import uuid4

from codebutler.chat.port import History
from codebutler.config.channels import chat_of
from codebutler.control.ear import Ear
from codebutler.control.listeners import ChatListener, Listeners
from codebutler.control.messages import (
    ChatRequest,
    ControlReply,
    Ended,
    Opened,
    Posted,
    Press,
    Said,
    Say,
    Wish,
)
from codebutler.control.past import as_operator, read_past
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, CodeButlerError
from codebutler.domain.message import REASON_ACTION, said
from codebutler.domain.model import OPERATOR, ButtonClicked, Event, MessagePosted, Operation, Post
from codebutler.intake.intake import Outcome
from codebutler.intake.repos import Served

PATIENCE_S = 5.0
MOST_PAST = 200
NOT_ACCEPTED = "the message was {}: its thread says why, and so does `codebutler audit`"
KEPT = "{} does not run now ({}); the message is kept until it does"


class Lives(Protocol):
    """The supervisor, as far as it says why a worker stays down."""

    def down(self, name: str) -> str:
        """Why the repository's worker stays down; "" if it does not."""


class Door(Protocol):
    """Where wishes are handed in, anybody's: the intake."""

    async def accept(self, event: Event) -> Outcome:
        """Journal an event as those of a chat are; what became of it. Raises StoreError."""


class Sending(History, Protocol):
    """The chats, as far as the operator goes."""

    def trouble(self, channel: str) -> str:
        """Why nothing can be sent there now; "" while all is well."""

    async def submit(self, channel: str, op_id: str, operation: Operation, *, unsure: bool) -> str:
        """Do ``operation`` once for each ``op_id``; the message's ts. ``unsure``: look first. Raises ChatError."""


class Mouth:
    """How the operator speaks in a channel: for everybody there to see, then through the door like anybody's."""

    def __init__(self, intake: Door, chats: Sending, workers: Lives, clock: Clock) -> None:
        self._clock = clock
        self._intake = intake
        self._chats = chats
        self._workers = workers

    def trouble(self, served: Served) -> str:
        """Why nothing is said in the repository's channel now."""
        return self._chats.trouble(served.channel_id) or f"{chat_of(served.channel_id)} does not answer"

    async def post(self, served: Served, text: str, thread_ts: str | None) -> str:
        """Show the operator's words; returns their ts. Raises CodeButlerError where the chat refuses them."""
        post = Post(message=said(as_operator(text)), thread_ts=thread_ts)
        try:
            return await self._chats.submit(served.channel_id, uuid4().hex, post, unsure=False)
        except ChatError as error:
            raise CodeButlerError(f"{chat_of(served.channel_id)} refused the message: {error}") from error

    async def said(
        self, served: Served, ts: str, text: str, thread_ts: str | None, seen_ts: str = ""
    ) -> None:
        """Hand in what was posted as ``ts``. Raises CodeButlerError as ``hand_in``."""
        await self.hand_in(
            MessagePosted(
                channel=served.channel_id,
                ts=ts,
                sent_at=self._clock.now().timestamp(),
                order=ts,
                is_direct=False,
                user=OPERATOR,
                text=text,
                thread_ts=thread_ts,
                origin="local",
                seen_ts=seen_ts,
            )
        )

    async def hand_in(self, event: MessagePosted | ButtonClicked) -> None:
        """Through the door. Raises CodeButlerError where it is not taken."""
        outcome = await self._intake.accept(event)
        if outcome != "accepted":
            raise CodeButlerError(NOT_ACCEPTED.format(outcome))

    def check_up(self, served: Served) -> None:
        """Raises CodeButlerError where the repository's worker stays down."""
        if why := self._workers.down(served.entry.name):
            raise CodeButlerError(KEPT.format(served.entry.name, why))

    async def past(self, served: Served, thread_ts: str, most: int, ear: Ear) -> tuple[ControlReply, ...]:
        """The thread's last messages; none where the chat does not give them."""
        try:
            return await read_past(self._chats, served.channel_id, thread_ts, most, ear)
        except ChatError:
            return ()


class Chat:
    """``replies`` is its life. ``patience_s``: when it is said that the chat keeps us waiting."""

    def __init__(
        self,
        served: Served,
        request: ChatRequest,
        mouth: Mouth,
        listeners: Listeners,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._patience_s = patience_s
        self._served = served
        self._request = request
        self._mouth = mouth
        self._listeners = listeners
        self._queue: asyncio.Queue[ControlReply | None] = asyncio.Queue()
        self._listener = ChatListener(served.channel_id, request.thread_ts, self._queue)

    async def replies(self, wishes: AsyncIterator[Wish]) -> AsyncGenerator[ControlReply]:
        """Everything, until ``wishes`` end. Raises CodeButlerError for a wish that cannot be read."""
        with self._listeners.added(self._listener):
            if (thread_ts := self._request.thread_ts) is not None:
                most = min(self._request.past, MOST_PAST)
                for past in await self._mouth.past(self._served, thread_ts, most, self._listener.ear):
                    yield past
            agent = self._served.config.agent.default
            yield Opened(repo=self._served.entry.name, agent=agent, thread_ts=thread_ts)
            reading = asyncio.create_task(self._read(wishes), name=f"chat with {self._served.entry.name}")
            try:
                while (reply := await self._queue.get()) is not None:
                    yield reply
                await reading
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, wishes: AsyncIterator[Wish]) -> None:
        try:
            async for wish in wishes:
                try:
                    await self._grant(wish)
                except CodeButlerError as error:
                    self._queue.put_nowait(Said(text=f"⚠️ {error}"))
        finally:
            self._queue.put_nowait(None)

    async def _grant(self, wish: Wish) -> None:
        match wish:
            case Say(text=text, seen_ts=seen_ts):
                await self._say(text, seen_ts)
            case Press():
                await self._press(wish)

    async def _say(self, text: str, seen_ts: str) -> None:
        channel = self._served.channel_id
        thread_ts = self._listener.ear.thread_ts
        try:
            ts = await self._posted(text, thread_ts)
        except CodeButlerError:
            self._queue.put_nowait(Ended(ts="", outcome="failed"))
            raise
        self._listener.ear.thread_ts = thread_ts or ts
        self._listener.await_outcome(ts)
        self._queue.put_nowait(Posted(channel=channel, ts=ts, thread_ts=thread_ts or ts))
        try:
            await self._mouth.said(self._served, ts, text, thread_ts, seen_ts)
            self._mouth.check_up(self._served)
        except CodeButlerError:
            self._queue.put_nowait(Ended(ts=ts, outcome="failed"))
            raise

    async def _posted(self, text: str, thread_ts: str | None) -> str:
        posting = asyncio.ensure_future(self._mouth.post(self._served, text, thread_ts))
        try:
            done, _ = await asyncio.wait((posting,), timeout=self._patience_s)
            if not done:
                why = self._mouth.trouble(self._served)
                self._queue.put_nowait(Said(text=f"⏳ {why}; your message is sent as soon as it can be."))
            return await posting
        finally:
            posting.cancel()

    async def _press(self, press: Press) -> None:
        if press.action_id == REASON_ACTION or self._listener.ear.thread_ts is None:
            raise CodeButlerError("that button is not for a terminal")
        await self._mouth.hand_in(
            ButtonClicked(
                channel=self._served.channel_id,
                is_direct=False,
                user=OPERATOR,
                message_ts=press.ts,
                action_id=press.action_id,
                value=press.value,
                action_ts=f"local {uuid4().hex}",
                thread_ts=self._listener.ear.thread_ts,
                user_name=OPERATOR,
                picked=press.picked,
                origin="local",
            )
        )
