"""The key-value store of NATS: small values that can be changed only by a writer that knows their latest revision."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nats.errors import Error as NatsError
from nats.js.errors import KeyDeletedError, KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError

READ_S = 10.0
"""How long reading a whole bucket may take."""
POLL_S = 0.05

T = TypeVar("T")


class BusError(CodeButlerError):
    """The NATS servers cannot be reached, or nobody there answers."""


async def cancellable(work: Awaitable[T]) -> T:
    """nats-py waits with ``asyncio.wait_for``, which loses a cancellation that comes with the result (before Python
    3.12)."""
    task = asyncio.current_task()
    try:
        return await work
    finally:
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


async def bus_call(work: Awaitable[T], *passed: type[Exception]) -> T:
    """The result of ``work``. Raises BusError instead of the library's errors, but for those that are ``passed``."""
    try:
        return await cancellable(work)
    except (NatsError, OSError) as error:
        if isinstance(error, passed):
            raise
        raise BusError(str(error)) from error


async def retry_until_answered(clock: Clock, work: Callable[[], Awaitable[T]], retry_s: float = 1.0) -> T:
    """The result of ``work``, which is repeated until NATS answers."""
    while True:
        with contextlib.suppress(BusError):
            return await work()
        await clock.sleep(retry_s)


class KeyBucket:
    """Values that can be changed only by a writer that knows their latest revision. Every method raises BusError."""

    def __init__(self, store: KeyValue) -> None:
        self._store = store

    async def get(self, key: str) -> tuple[str, int] | None:
        """(value, revision); None if there is none."""
        try:
            entry = await bus_call(self._store.get(key), KeyNotFoundError, KeyDeletedError)
        except (KeyNotFoundError, KeyDeletedError):
            return None
        return (entry.value or b"").decode(), entry.revision or 0

    async def put_if_latest(self, key: str, value: str, last: int | None) -> int | None:
        """Store a value; returns its revision, None if ``last`` is not the latest one (``last`` None: there is no value
        yet)."""
        try:
            if last is None:
                return await bus_call(self._store.create(key, value.encode()), KeyWrongLastSequenceError)
            return await bus_call(self._store.update(key, value.encode(), last), KeyWrongLastSequenceError)
        except KeyWrongLastSequenceError:
            return None

    async def delete(self, key: str, last: int) -> None:
        """Delete it if ``last`` is still the latest revision."""
        with contextlib.suppress(NatsError, OSError):
            await cancellable(self._store.delete(key, last))

    async def create(self, key: str, value: str) -> bool:
        """Store the first value of a key. False if there is a value, if one ended so recently that its end is still
        remembered, or if one is just being written: ``existing_value`` tells which."""
        try:
            await bus_call(self._store.update(key, value.encode(), 0), KeyWrongLastSequenceError)
        except KeyWrongLastSequenceError:
            return False
        return True

    async def existing_value(self, key: str) -> str | None:
        """The value that made ``create`` return False; None if it has ended. Raises BusError while it is still being
        written, because too few servers have it to know whether it will last."""
        try:
            entry = await bus_call(self._store.get(key), KeyNotFoundError)
        except KeyNotFoundError as error:
            if error.op is None:
                raise BusError("not on enough servers yet") from error
            return None
        return (entry.value or b"").decode()

    async def set(self, key: str, value: str) -> int:
        """Store a value whatever the present one is; returns the new revision."""
        return await bus_call(self._store.put(key, value.encode()))

    async def purge(self, key: str, known_s: float) -> None:
        """End the value; for ``known_s`` seconds ``create`` accepts no other."""
        await bus_call(self._store.purge(key, msg_ttl=known_s))

    async def all(self, after: int) -> dict[str, str]:
        """All values in the order they were written, including everything up to the revision ``after``: a replica that
        is behind is read again."""
        try:
            async with asyncio.timeout(READ_S):
                while True:
                    found = await self._read()
                    if any(revision >= after for _, _, revision in found):
                        found.sort(key=lambda each: each[2])
                        return {key: value for key, value, _ in found if value is not None}
                    await asyncio.sleep(POLL_S)
        except (NatsError, OSError, TimeoutError) as error:
            raise BusError(str(error)) from error

    async def _read(self) -> list[tuple[str, str | None, int]]:
        """(key, value or None for one that was ended, revision)"""
        found: list[tuple[str, str | None, int]] = []
        watcher = await cancellable(self._store.watchall())
        try:
            while (entry := await cancellable(watcher.updates(READ_S))) is not None:  # type: ignore[no-untyped-call]
                value = (entry.value or b"").decode() if entry.operation is None else None
                found.append((entry.key, value, entry.revision or 0))
        finally:
            with contextlib.suppress(NatsError):
                await watcher.stop()  # type: ignore[no-untyped-call]
        return found
