"""One terminal's chat with one repository: wishes in, everything its thread says out, in one order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Protocol
from uuid import uuid4

from codebutler.chat.port import History
from codebutler.config.channels import chat_of
from codebutler.control.listeners import Listener, Listeners, as_operator, read_past
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
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, CodeButlerError
from codebutler.domain.message import REASON_ACTION, said
from codebutler.domain.model import OPERATOR, ButtonClicked, Event, MessagePosted, Operation, Post
from codebutler.intake.intake import Outcome
from codebutler.intake.repos import Served

PATIENCE_S = 5.0
MOST_PAST = 200
NOT_ACCEPTED = "the message was {}: its thread says why, and so does `codebutler audit`"
KEPT = "{} is not running ({}); your message is kept until it is"


class OperatorChats(History, Protocol):
    """The chats, as far as the operator goes."""

    def trouble(self, channel: str) -> str:
        """Why nothing can be sent there now; "" while all is well."""

    async def submit(self, channel: str, op_id: str, operation: Operation, *, unsure: bool) -> str:
        """Do ``operation`` once for each ``op_id``; the message's ts. ``unsure``: look first. Raises ChatError."""


class Speaker:
    """How the operator speaks in a channel: for everybody there to see, then through the intake like anybody.

    ``accept`` is the intake's; ``down`` says why a repository's worker stays down, "" if it does not.
    """

    def __init__(
        self,
        accept: Callable[[Event], Awaitable[Outcome]],
        chats: OperatorChats,
        down: Callable[[str], str],
        clock: Clock,
    ) -> None:
        self._accept = accept
        self._chats = chats
        self._down = down
        self._clock = clock

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
        """Give an event to the intake. Raises CodeButlerError where it is not accepted."""
        outcome = await self._accept(event)
        if outcome != "accepted":
            raise CodeButlerError(NOT_ACCEPTED.format(outcome))

    def check_up(self, served: Served) -> None:
        """Raises CodeButlerError where the repository's worker stays down."""
        if why := self._down(served.entry.name):
            raise CodeButlerError(KEPT.format(served.entry.name, why))

    async def past(
        self, served: Served, thread_ts: str, most: int, listener: Listener
    ) -> tuple[ControlReply, ...]:
        """The thread's last messages; none where the chat does not give them."""
        try:
            return await read_past(self._chats, served.channel_id, thread_ts, most, listener)
        except ChatError:
            return ()


class Chat:
    """``replies`` is all of it. ``patience_s``: when it is said that the chat keeps us waiting."""

    def __init__(
        self,
        served: Served,
        request: ChatRequest,
        speaker: Speaker,
        listeners: Listeners,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._patience_s = patience_s
        self._served = served
        self._request = request
        self._speaker = speaker
        self._listeners = listeners

    async def replies(self, wishes: AsyncIterator[Wish]) -> AsyncGenerator[ControlReply]:
        """Everything, until ``wishes`` end. Raises CodeButlerError for a wish that cannot be read."""
        thread_ts = self._request.thread_ts
        with self._listeners.added(self._served.channel_id, thread_ts) as listener:
            if thread_ts is not None:
                most = min(self._request.past, MOST_PAST)
                for past in await self._speaker.past(self._served, thread_ts, most, listener):
                    yield past
            agent = self._served.config.agent.default
            yield Opened(repo=self._served.entry.name, agent=agent, thread_ts=thread_ts)
            reading = asyncio.create_task(
                self._read(wishes, listener), name=f"chat with {self._served.entry.name}"
            )
            try:
                while (reply := await listener.replies.get()) is not None:
                    yield reply
                await reading
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, wishes: AsyncIterator[Wish], listener: Listener) -> None:
        try:
            async for wish in wishes:
                try:
                    match wish:
                        case Say():
                            await self._say(wish, listener)
                        case Press():
                            await self._press(wish, listener)
                except CodeButlerError as error:
                    listener.replies.put_nowait(Said(text=f"⚠️ {error}"))
        finally:
            listener.replies.put_nowait(None)

    async def _say(self, say: Say, listener: Listener) -> None:
        thread_ts = listener.thread_ts
        try:
            ts = await self._posted(say.text, listener)
        except CodeButlerError:
            listener.replies.put_nowait(Ended(ts="", outcome="failed"))
            raise
        listener.thread_ts = thread_ts or ts
        listener.await_outcome(ts)
        listener.replies.put_nowait(
            Posted(channel=self._served.channel_id, ts=ts, thread_ts=listener.thread_ts)
        )
        try:
            await self._speaker.said(self._served, ts, say.text, thread_ts, say.seen_ts)
            self._speaker.check_up(self._served)
        except CodeButlerError:
            listener.replies.put_nowait(Ended(ts=ts, outcome="failed"))
            raise

    async def _posted(self, text: str, listener: Listener) -> str:
        posting = asyncio.ensure_future(self._speaker.post(self._served, text, listener.thread_ts))
        try:
            done, _ = await asyncio.wait((posting,), timeout=self._patience_s)
            if not done:
                why = self._speaker.trouble(self._served)
                listener.replies.put_nowait(
                    Said(text=f"⏳ {why}; your message is sent as soon as it can be.")
                )
            return await posting
        finally:
            posting.cancel()

    async def _press(self, press: Press, listener: Listener) -> None:
        if press.action_id == REASON_ACTION or listener.thread_ts is None:
            raise CodeButlerError("that button does not work in a terminal")
        await self._speaker.hand_in(
            ButtonClicked(
                channel=self._served.channel_id,
                is_direct=False,
                user=OPERATOR,
                message_ts=press.ts,
                action_id=press.action_id,
                value=press.value,
                action_ts=f"local {uuid4().hex}",
                thread_ts=listener.thread_ts,
                user_name=OPERATOR,
                picked=press.picked,
                origin="local",
            )
        )
