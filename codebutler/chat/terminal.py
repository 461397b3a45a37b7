"""One terminal's chat with one repository: requests in, everything in its thread out, in one order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from uuid import uuid4

from codebutler.chat.chats import Chats
from codebutler.chat.listeners import KEPT, Listener, Listeners, as_operator, read_past
from codebutler.config.chats import chat_of
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, CodeButlerError
from codebutler.domain.message import REASON_ACTION, said
from codebutler.domain.model import OPERATOR, ButtonClicked, Event, MessagePosted, Post
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.intake.intake import Outcome
from codebutler.intake.repos import Served
from codebutler.protocol.control import (
    ChatInput,
    ChatOpened,
    ChatRequest,
    ControlReply,
    Ended,
    Posted,
    Press,
    Said,
    Say,
)

PATIENCE_S = 5.0
MOST_PAST = 200
NOT_ACCEPTED = "the message was {}: see its thread, or `codebutler audit`"


class Speaker:
    """How the operator speaks in a channel: visible to everybody there, then through the intake like anybody else.

    ``accept`` is the intake's; ``down`` says why a repository's worker stays down, "" if it does not.
    """

    def __init__(
        self,
        accept: Callable[[Event], Awaitable[Outcome]],
        chats: Chats,
        down: Callable[[str], str],
        clock: Clock,
    ) -> None:
        self._accept = accept
        self._chats = chats
        self._down = down
        self._clock = clock

    def trouble(self, served: Served) -> str:
        """Why nothing can be posted in the repository's channel now; "" if it can."""
        return self._chats.trouble(served.channel_id) or f"{chat_of(served.channel_id)} does not answer"

    async def post(self, served: Served, text: str, thread: MessageRef | None) -> MessageRef:
        """Show the operator's words; returns their ref. Raises CodeButlerError where the chat refuses them."""
        post = Post(message=said(as_operator(text)), thread=thread)
        try:
            return await self._chats.submit(served.channel_id, uuid4().hex, post, unsure=False)
        except ChatError as error:
            raise CodeButlerError(f"{chat_of(served.channel_id)} refused the message: {error}") from error

    async def said(
        self,
        served: Served,
        ref: MessageRef,
        text: str,
        thread: MessageRef | None,
        seen: MessageRef = NOWHERE,
    ) -> None:
        """Hand in what was posted as ``ref``. Raises CodeButlerError as ``hand_in``."""
        await self.hand_in(
            MessagePosted(
                channel=served.channel_id,
                ref=ref,
                sent_at=self._clock.now().timestamp(),
                order=ref,
                is_direct=False,
                user=OPERATOR,
                text=text,
                thread=thread,
                origin="local",
                seen=seen,
            )
        )

    async def press(self, served: Served, press: Press, thread: MessageRef | None, words: str = "") -> None:
        """Press a button as the operator; ``words`` are those of the form that it opened. Raises CodeButlerError as
        ``hand_in``."""
        await self.hand_in(
            ButtonClicked(
                channel=served.channel_id,
                is_direct=False,
                user=OPERATOR,
                message=press.ref,
                action_id=press.action_id,
                value=press.value,
                press=f"local {uuid4().hex}",
                thread=thread,
                user_name=OPERATOR,
                words=words,
                picked=press.picked,
                origin="local",
            )
        )

    async def hand_in(self, event: MessagePosted | ButtonClicked) -> None:
        """Pass an event to the intake. Raises CodeButlerError if it is not accepted."""
        outcome = await self._accept(event)
        if outcome != "accepted":
            raise CodeButlerError(NOT_ACCEPTED.format(outcome))

    def check_up(self, served: Served) -> None:
        """Raises CodeButlerError if the repository's worker stays down."""
        if why := self._down(served.entry.name):
            raise CodeButlerError(KEPT.format(served.entry.name, why))

    async def past(
        self, served: Served, thread: MessageRef, most: int, listener: Listener
    ) -> tuple[ControlReply, ...]:
        """The thread's last messages; none if the chat does not provide them."""
        try:
            return await read_past(self._chats, served.channel_id, thread, most, listener)
        except ChatError:
            return ()


class Chat:
    """Iterate ``replies``. ``patience_s``: how long to wait before saying that the chat is slow."""

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

    async def replies(self, inputs: AsyncIterator[ChatInput]) -> AsyncGenerator[ControlReply]:
        """Everything, until ``inputs`` end. Raises CodeButlerError for an input that cannot be read."""
        thread = self._request.thread
        with self._listeners.added(self._served.channel_id, thread) as listener:
            if thread is not None:
                most = min(self._request.past, MOST_PAST)
                for past in await self._speaker.past(self._served, thread, most, listener):
                    yield past
            agent = self._served.config.agent.default
            yield ChatOpened(repo=self._served.entry.name, agent=agent, thread=thread)
            reading = asyncio.create_task(
                self._read(inputs, listener), name=f"chat with {self._served.entry.name}"
            )
            try:
                while (reply := await listener.replies.get()) is not None:
                    yield reply
                await reading
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, inputs: AsyncIterator[ChatInput], listener: Listener) -> None:
        try:
            async for given in inputs:
                try:
                    match given:
                        case Say():
                            await self._say(given, listener)
                        case Press():
                            await self._press(given, listener)
                except CodeButlerError as error:
                    listener.replies.put_nowait(Said(text=f"⚠️ {error}"))
        finally:
            listener.replies.put_nowait(None)

    async def _say(self, say: Say, listener: Listener) -> None:
        thread = listener.thread
        try:
            ref = await self._posted(say.text, listener)
        except CodeButlerError:
            listener.replies.put_nowait(Ended(ref=NOWHERE, outcome="failed"))
            raise
        listener.thread = thread or ref
        listener.await_outcome(ref)
        listener.replies.put_nowait(Posted(channel=self._served.channel_id, ref=ref, thread=listener.thread))
        try:
            await self._speaker.said(self._served, ref, say.text, thread, say.seen)
            self._speaker.check_up(self._served)
        except CodeButlerError:
            listener.replies.put_nowait(Ended(ref=ref, outcome="failed"))
            raise

    async def _posted(self, text: str, listener: Listener) -> MessageRef:
        posting = asyncio.ensure_future(self._speaker.post(self._served, text, listener.thread))
        try:
            done, _ = await asyncio.wait((posting,), timeout=self._patience_s)
            if not done:
                why = self._speaker.trouble(self._served)
                listener.replies.put_nowait(Said(text=f"⏳ {why}; your message is sent as soon as possible."))
            return await posting
        finally:
            posting.cancel()

    async def _press(self, press: Press, listener: Listener) -> None:
        if press.action_id == REASON_ACTION or listener.thread is None:
            raise CodeButlerError("that button does not work in a terminal")
        await self._speaker.press(self._served, press, listener.thread)
