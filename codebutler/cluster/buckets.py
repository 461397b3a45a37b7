"""The key-value store of NATS: small values that can be changed only by a writer that knows their latest revision."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

from nats.errors import Error as NatsError
from nats.js.errors import KeyDeletedError, KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from codebutler.domain.errors import CodeButlerError

READ_S = 10.0
"""How long reading a whole bucket may take."""
LOOK_S = 0.05

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


class KeyBucket:
    """Values that can be changed only by a writer that knows their latest revision. Every method raises BusError."""

    def __init__(self, store: KeyValue) -> None:
        self._store = store

    async def get(self, key: str) -> tuple[str, int] | None:
        """(value, revision); None if there is none."""
        try:
            entry = await cancellable(self._store.get(key))
        except (KeyNotFoundError, KeyDeletedError):
            return None
        except (NatsError, OSError) as error:
            raise BusError from error
        return (entry.value or b"").decode(), entry.revision or 0

    async def put(self, key: str, value: str, last: int | None) -> int | None:
        """Store a value; returns its revision, None if ``last`` is not the latest one (``last`` None: there is no value
        yet)."""
        try:
            if last is None:
                return await cancellable(self._store.create(key, value.encode()))
            return await cancellable(self._store.update(key, value.encode(), last))
        except KeyWrongLastSequenceError:
            return None
        except (NatsError, OSError) as error:
            raise BusError from error

    async def delete(self, key: str, last: int) -> None:
        """Delete it if ``last`` is still the latest revision."""
        with contextlib.suppress(NatsError, OSError):
            await cancellable(self._store.delete(key, last))

    async def begin(self, key: str, value: str) -> bool:
        """Store the first value of a key. False if there is a value, if one ended so recently that its end is still
        remembered, or if one is just being written: ``begun`` tells which."""
        try:
            await cancellable(self._store.update(key, value.encode(), 0))
        except KeyWrongLastSequenceError:
            return False
        except (NatsError, OSError) as error:
            raise BusError(str(error)) from error
        return True

    async def begun(self, key: str) -> str | None:
        """The value that made ``begin`` return False; None if it has ended. Raises BusError while it is still being
        written, because too few servers have it to know whether it will last."""
        try:
            entry = await cancellable(self._store.get(key))
        except KeyNotFoundError as error:
            if error.op is None:
                raise BusError("not on enough servers yet") from error
            return None
        except (NatsError, OSError) as error:
            raise BusError from error
        return (entry.value or b"").decode()

    async def set(self, key: str, value: str) -> int:
        """Store a value whatever the present one is; returns the new revision."""
        try:
            return await cancellable(self._store.put(key, value.encode()))
        except (NatsError, OSError) as error:
            raise BusError(str(error)) from error

    async def end(self, key: str, known_s: float) -> None:
        """End the value; for ``known_s`` seconds ``begin`` accepts no other."""
        try:
            await cancellable(self._store.purge(key, msg_ttl=known_s))
        except (NatsError, OSError) as error:
            raise BusError(str(error)) from error

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
                    await asyncio.sleep(LOOK_S)
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
