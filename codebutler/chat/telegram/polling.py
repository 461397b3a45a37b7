"""Long polling: getUpdates is inbox, history and acknowledgement in one.

An update is confirmed once a later call names a higher offset, and only then; so the offset moves over stored
updates, and no further. A poller starts without one: the server then returns the earliest unconfirmed update.
Nothing ends it but ``stop`` and a token that is refused from the start: one that gave up would be dead for
days.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.updates import UPDATE_KINDS
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatAuthError, ChatError, ChatRateLimitedError
from codebutler.platform.tasks import first_of, full_jitter_s, settled_within

POLL_S = 50
"""The longest that Telegram waits."""
ANSWER_S = POLL_S + 15.0
WEDGED_S = 150.0
"""After this long without an answer the connection is dead."""
BATCH = 100
BASE_S = 1.0
CAP_S = 30.0
OTHER_CONSUMER_WAIT_S = (3.0, 30.0)
AUTH_RETRY_S = 60.0
IMMEDIATE_S = 1.0
"""An update that comes sooner than this was waiting for us."""
IDLE_S = 1.0
"""Between polls of a server that has nothing and does not wait, as some other than Telegram's do."""

OTHER_CONSUMER = (
    "another program receives this bot's messages, and only one can. Stop it, or get a bot for "
    "each machine from @BotFather, then run `codebutler setup`"
)
WEBHOOK = "a webhook receives this bot's messages: `codebutler setup` can remove it"

log = logging.getLogger("codebutler.chat.telegram")

State = Literal["connecting", "connected", "reconnecting", "auth_failed", "stopped"]


class PollStatus(Struct, frozen=True):
    """The poller's state. ``last_event_age_s``: since Telegram last answered a poll, None before the first answer.
    ``reconnects``: how often it answered again after a failure. ``ignored``: updates not for us,
    ``unreadable``: of an unknown shape."""

    state: State = "connecting"
    connections: int = 0
    reconnects: int = 0
    last_event_age_s: float | None = None
    ignored: int = 0
    unreadable: int = 0
    trouble: str = ""
    catching_up: bool = False


class BatchResult(Struct, frozen=True):
    """The result of a batch. ``next_offset``: the first update to fetch (again), None if nothing was taken;
    ``retry_after_s``: when to fetch it."""

    next_offset: int | None
    retry_after_s: float = 0.0


HandleBatch = Callable[[Sequence[Mapping[str, Any]], bool], Awaitable[BatchResult]]
"""Takes updates in order; True: they waited for us. When it returns they are on disk."""


class Poller:
    """Polls for updates. ``take`` handles them and raises nothing. ``note`` gets each change of the state or the
    trouble."""

    def __init__(
        self,
        api: BotApi,
        handle_batch: HandleBatch,
        clock: Clock,
        rng: Random,
        on_status: Callable[[PollStatus], None],
    ) -> None:
        self._api = api
        self._handle_batch = handle_batch
        self._clock = clock
        self._rng = rng
        self._on_status = on_status
        self._status = PollStatus()
        self._last_answer_s: float | None = None
        self._failures = 0
        self._empty_polls = 0
        """Polls, one after the other, that were answered at once with nothing, though we had asked to wait."""
        self._offset: int | None = None
        self._stopping = asyncio.Event()
        self._nudged = asyncio.Event()
        self._batch_lock = asyncio.Lock()
        self._catching_up = True

    @property
    def status(self) -> PollStatus:
        """The current state."""
        age_s = None if self._last_answer_s is None else self._clock.monotonic() - self._last_answer_s
        return replace(self._status, last_event_age_s=age_s, catching_up=self._catching_up)

    async def run(self) -> None:
        """Runs until ``stop``. Raises ChatAuthError if the token is refused from the start."""
        try:
            while not self._stopping.is_set():
                poll = asyncio.create_task(self._poll_once(), name="telegram poll")
                stopped = asyncio.create_task(self._stopping.wait(), name="telegram stop")
                try:
                    await asyncio.wait({poll, stopped}, return_when=asyncio.FIRST_COMPLETED)
                    if not poll.done():
                        # Updates being committed are finished; the next process confirms them.
                        async with self._batch_lock:
                            poll.cancel()
                finally:
                    stopped.cancel()
                    poll.cancel()
                    await asyncio.gather(poll, stopped, return_exceptions=True)
                if not poll.cancelled():
                    poll.result()
        except ChatAuthError as error:
            self._set_state("auth_failed", str(error))
            raise
        self._set_state("stopped", "")

    async def stop(self) -> None:
        """Take no more updates; those being committed are finished."""
        self._stopping.set()
        async with self._batch_lock:
            pass

    def nudge(self) -> None:
        """Do not wait for the next attempt, nor after the one that is under way."""
        self._nudged.set()

    async def _poll_once(self) -> None:
        started_s, is_long = self._clock.monotonic(), self._is_long
        try:
            updates = await self._updates()
        except ChatAuthError as error:
            if self._last_answer_s is None:
                raise
            await self._on_failure(str(error), AUTH_RETRY_S)
        except ChatRateLimitedError as error:
            await self._on_failure(str(error), error.retry_after_s)
        except ChatError as error:
            await self._on_error(error)
        else:
            self._on_answer()
            waited = self._clock.monotonic() - started_s >= IMMEDIATE_S
            self._catching_up = self._catching_up and bool(updates) and not waited
            async with self._batch_lock:
                result = await self._handle_batch(updates, self._catching_up)
            self._offset = result.next_offset if result.next_offset is not None else self._offset
            self._empty_polls = self._empty_polls + 1 if is_long and not updates and not waited else 0
            if result.retry_after_s or self._empty_polls > 1:
                await self._pause(result.retry_after_s or IDLE_S)

    @property
    def _is_long(self) -> bool:
        """Whether the next poll waits for news. The first poll does not: it shows at once that we are
        connected, and tells updates that waited for us from new ones."""
        return self._last_answer_s is not None and not self._failures

    async def _updates(self) -> list[Mapping[str, Any]]:
        call = asyncio.ensure_future(
            self._api.call(
                "getUpdates",
                timeout_s=ANSWER_S,
                offset=self._offset,
                limit=BATCH,
                timeout=POLL_S if self._is_long else 0,
                allowed_updates=list(UPDATE_KINDS),
            )
        )
        try:
            if not await settled_within(self._clock, call, WEDGED_S):
                raise ChatError(f"no answer for {WEDGED_S:g} s", "wedged")
            found = call.result()
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []

    async def _on_error(self, error: ChatError) -> None:
        if error.code in ("other_consumer", "webhook"):
            trouble = OTHER_CONSUMER if error.code == "other_consumer" else WEBHOOK
            await self._on_failure(trouble, self._rng.uniform(*OTHER_CONSUMER_WAIT_S))
            return
        if error.code in ("wedged", "unreachable"):
            await self._api.reconnect()
        wait_s = full_jitter_s(self._rng, self._failures + 1, BASE_S, CAP_S)
        await self._on_failure(str(error), wait_s)

    async def _on_failure(self, trouble: str, wait_s: float) -> None:
        self._failures += 1
        self._catching_up = True
        self._set_state("connecting" if self._last_answer_s is None else "reconnecting", trouble)
        await self._pause(wait_s)

    async def _pause(self, seconds: float) -> None:
        await first_of(self._clock.sleep(seconds), self._nudged.wait())
        self._nudged.clear()

    def _on_answer(self) -> None:
        self._last_answer_s = self._clock.monotonic()
        if self._failures and self._status.state == "reconnecting":
            self._status = replace(self._status, reconnects=self._status.reconnects + 1)
        self._failures = 0
        self._set_state("connected", "")

    def _set_state(self, state: State, trouble: str) -> None:
        if (state, trouble) == (self._status.state, self._status.trouble):
            return
        if trouble and trouble != self._status.trouble:
            log.warning("telegram: %s", trouble)
        self._status = replace(
            self._status, state=state, trouble=trouble, connections=int(state == "connected")
        )
        self._on_status(self.status)
