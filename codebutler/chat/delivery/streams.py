"""Streams an agent's prose into its thread of a direct conversation until the answer replaces it.

Best effort: nothing waits for it, and any error ends it. The answer is an operation as always: if it cannot
replace the stream it is posted, and the stream is deleted. A chat ends a stream by itself after a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.chat.delivery.leftovers import Leftovers, Thread
from codebutler.chat.delivery.loop import Loop
from codebutler.chat.port import ABOUT_A_PLACE, Call, ChatPort, Streams
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatOutcomeUnknownError, ChatRateLimitedError, StoreError
from codebutler.domain.model import Post
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef
from codebutler.platform.kill_points import reached
from codebutler.platform.tasks import Tasks, wait_for
from codebutler.text.disguised import CUT

MOST_CHARS = 10_000
"""Less than every streaming chat takes in one message; after that much, readers can wait for the rest."""
PACE_S = 1.0
LIFE_S = 240.0
WAIT_S = 2.0
"""How long an answer waits for its stream's call under way."""
LINGER_S = 10.0
"""How long after its turn's end a stream waits for an answer that the chat's limits hold up."""
MOST_OPEN = 50

log = logging.getLogger("codebutler.chat.delivery")


class Growth(Struct, frozen=True):
    """The complete blocks of prose, and the one being written."""

    whole: str = ""
    block: str = ""

    def writing(self, text: str) -> Growth:
        """The block's current text. Its last word may be incomplete: it waits."""
        return replace(self, block=_without_last_word(text))

    def written(self, text: str) -> Growth:
        """The block is complete."""
        return Growth(whole=_joined(self.whole, text.strip())[: MOST_CHARS + 1])

    @property
    def text(self) -> str:
        """Everything that may be shown."""
        text = _joined(self.whole, self.block)
        return text if len(text) <= MOST_CHARS else _without_last_word(text[:MOST_CHARS])


def more(shown: str, text: str) -> str | None:
    """The text to append to ``shown`` to get ``text``; None if appending cannot do that."""
    return text[len(shown) :] if text.startswith(shown) else None


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _without_last_word(text: str) -> str:
    text = text.lstrip()
    end = max(text.rfind(space) for space in " \n\t")
    return text[: max(end, 0)].rstrip()


class Stream(Struct, eq=False):
    """``writing`` is the latest text of a block. ``ref`` is "" before it has started; ``is_lost``: it may
    have started, and we do not know where. ``is_passed``: something else was posted below it, so nothing may
    replace it. ``is_over``: its turn is.

    After ``quiet`` nothing is appended; after ``ended`` it is an ordinary message.
    """

    thread: Thread
    writing: str = ""
    growth: Growth = field(default_factory=Growth)
    ref: MessageRef = NOWHERE
    shown: str = ""
    is_lost: bool = False
    is_passed: bool = False
    is_over: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        """Append nothing more."""
        self.quiet.set()
        self.news.set()


class Streamer:
    """The streams, and posts beside them. ``redact`` sees every text last.

    Without ``leftovers`` nothing is streamed.
    """

    def __init__(
        self,
        chat: ChatPort,
        loop: Loop,
        clock: Clock,
        redact: Callable[[str], str],
        leftovers: Leftovers | None,
    ) -> None:
        self._chat = chat
        self._loop = loop
        self._clock = clock
        self._redact = redact
        self._leftovers = leftovers
        self.open: dict[Thread, Stream] = {}
        """The streams that an answer may still replace."""
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self._works = False

    async def begin(self) -> None:
        """Delete the leftovers of an earlier process; after that streams may start."""
        if self._leftovers is None:
            return
        try:
            left = await self._leftovers.load()
        except StoreError as error:
            log.warning("streaming is off: %s", error)
            return
        for thread in left:
            self._tasks.start(self._leftovers.sweep(thread), name=f"sweep of {thread[0]}")
        self._works = True

    async def close(self) -> None:
        """Stop at once; the next process deletes the leftovers."""
        self._works = False
        await self._tasks.close(0)

    def writing(self, channel: ConversationRef, thread: MessageRef, text: str) -> None:
        """The current text of a block of prose."""
        if (stream := self._stream((channel, thread))) is not None:
            stream.writing = text[:MOST_CHARS]
            stream.news.set()

    def written(self, channel: ConversationRef, thread: MessageRef, text: str) -> None:
        """A block of prose is complete. It does not start a stream: it may be the answer."""
        if (stream := self.open.get((channel, thread))) is not None:
            stream.writing = ""
            stream.growth = stream.growth.written(self._redact(text[:MOST_CHARS]))
            stream.news.set()

    def over(self, channel: ConversationRef, thread: MessageRef) -> None:
        """The turn that wrote there is over."""
        stream = self.open.get((channel, thread))
        if stream is not None and not stream.is_over:
            stream.is_over = True
            stream.end()
            self._tasks.start(self._linger(stream), name=f"end of a stream in {channel}")

    async def post(self, stream: Stream, post: Post, op_id: str) -> MessageRef:
        """As in the port, into the thread of an open stream. An answer replaces the stream, if it can."""
        if post.in_place and await self._take(stream, post, op_id):
            return stream.ref
        ref = await self._chat.post(stream.thread[0], post, op_id)
        self._pass(stream, answered=post.in_place)
        return ref

    def passed(self, channel: ConversationRef, thread: MessageRef) -> None:
        """Something other than the answer was posted in the thread."""
        if (stream := self.open.get((channel, thread))) is not None:
            self._pass(stream, answered=False)

    def _stream(self, thread: Thread) -> Stream | None:
        """The thread's stream, a new one if there is none; None if there cannot be one now."""
        if self._leftovers is None or not self._works:
            return None
        stream = self.open.get(thread)
        if stream is not None and stream.is_over:
            self._close(stream)
            stream = None
        if stream is None and len(self.open) < MOST_OPEN and not self._leftovers.is_dirty(thread):
            stream = self.open[thread] = Stream(thread)
            self._tasks.start(self._run(stream, self._leftovers), name=f"stream in {thread[0]}")
        return stream

    async def _run(self, stream: Stream, leftovers: Leftovers) -> None:
        """The task that makes the stream's calls, from its first word to its end."""
        until_s = self._clock.monotonic() + LIFE_S
        try:
            await leftovers.expect(stream.thread)
            while not stream.quiet.is_set() and (left_s := until_s - self._clock.monotonic()) > 0:
                if await wait_for(self._clock, stream.news, left_s):
                    stream.news.clear()
                    await self._grow(stream, leftovers.chat)
                    await wait_for(self._clock, stream.quiet, PACE_S)
            if stream.ref and self._loop.is_free("stop_stream", stream.thread[0]):
                await leftovers.chat.stop_stream(stream.thread[0], stream.ref)
        except (ChatError, StoreError) as error:
            log.debug("a stream in %s has ended: %s", stream.thread[0], error)
            self._mind(stream, error)
        finally:
            stream.end()
            stream.ended.set()

    def _mind(self, stream: Stream, error: Exception) -> None:
        """Whether a failure ends this stream only, or all streaming."""
        if stream.ref:
            return
        stream.is_lost = isinstance(error, ChatOutcomeUnknownError)
        if type(error) is ChatError and error.code not in ABOUT_A_PLACE:
            self._works = False
            log.info("streaming is off in this workspace: %s", error)

    async def _grow(self, stream: Stream, chat: Streams) -> None:
        """Show new text, if the limits allow it now. Raises ChatError: then it is over."""
        channel, thread = stream.thread
        # The end of unfinished text may be the start of a key.
        block = self._redact(f"{stream.writing}{CUT}").removesuffix(CUT)
        text = stream.growth.writing(block).text
        rest = more(stream.shown, text)
        if rest is None:
            stream.end()
        if not rest or stream.quiet.is_set():
            return
        call: Call = "append_stream" if stream.ref else "start_stream"
        if not self._loop.is_free(call, channel):
            stream.news.set()
            return
        try:
            if stream.ref:
                await chat.append_stream(channel, stream.ref, rest)
            else:
                reached("stream.before")
                stream.ref = await chat.start_stream(channel, thread, rest)
                reached("stream.after")
        except ChatRateLimitedError as error:
            self._loop.pause(call, channel, error.retry_after_s)
            raise
        stream.shown = text

    async def _take(self, stream: Stream, post: Post, op_id: str) -> bool:
        """Replace the stream by the answer; False if that is impossible.

        Raises ChatOutcomeUnknownError if it may have happened: look it up.
        """
        stream.end()
        if self._leftovers is None:
            return False
        channel, _ = stream.thread
        has_ended = await wait_for(self._clock, stream.ended, WAIT_S)
        if not has_ended or not stream.ref or stream.is_passed or not self._loop.is_free("update", channel):
            return False
        try:
            reached("stream.taking")
            await self._leftovers.chat.replace(channel, stream.ref, post, op_id)
            reached("stream.taken")
        except ChatOutcomeUnknownError:
            # The message that carries the operation now is the answer, and stays.
            ref, stream.ref, stream.is_lost = stream.ref, NOWHERE, True
            log.debug("an answer may have replaced %s", ref)
            self._close(stream)
            raise
        except ChatRateLimitedError as error:
            self._loop.pause("update", channel, error.retry_after_s)
            return False
        except ChatError as error:
            log.debug("an answer cannot replace its stream: %s", error)
            return False
        self._close(stream, taken=True)
        return True

    def _pass(self, stream: Stream, *, answered: bool) -> None:
        """Something was posted below it; ``answered``: what could have replaced it."""
        stream.is_passed = True
        stream.end()
        if answered or stream.is_over:
            self._close(stream)

    async def _linger(self, stream: Stream) -> None:
        if not stream.is_passed:
            await self._clock.sleep(LINGER_S)
        self._close(stream)

    def _close(self, stream: Stream, *, taken: bool = False) -> None:
        """Forget it, and delete it unless an answer has replaced it."""
        if self._leftovers is not None and self.open.get(stream.thread) is stream:
            del self.open[stream.thread]
            stream.end()
            self._leftovers.soil(stream.thread)
            work = self._cleared(stream, self._leftovers, taken=taken)
            self._tasks.start(work, name=f"end of a stream in {stream.thread[0]}")

    async def _cleared(self, stream: Stream, leftovers: Leftovers, *, taken: bool) -> None:
        await stream.ended.wait()
        if not taken and (stream.ref or stream.is_lost):
            await leftovers.sweep(stream.thread, stream.ref)
        else:
            await leftovers.settle(stream.thread)
