"""The key-value store of NATS: small values that can be changed only by a writer that knows their latest revision.

JetStream streams on as many servers as there are, up to three: created there, and spread when servers are added.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from nats.errors import Error as NatsError
from nats.js import JetStreamContext, api
from nats.js.errors import (
    APIError,
    KeyDeletedError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NotFoundError,
)
from nats.js.kv import KeyValue

from codebutler.cluster.membership import SAFE
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


TOO_MANY = (10005, 10023, 10074)
"""The server's error codes for: no suitable peers, no room on them, no replicas without a cluster."""
STREAM_IS_OTHERWISE = 10058
"""The error code for an existing stream with another configuration."""
OURS = ("CB_", "KV_CB_")

log = logging.getLogger("codebutler.cluster")


class JetStreams:
    """Creates and spreads streams and buckets. ``replicas``: on how many servers; 0 = on three, or on one if there are
    fewer than three."""

    def __init__(self, jetstream: JetStreamContext, replicas: int) -> None:
        self._jetstream = jetstream
        self._choices = (replicas,) if replicas else (SAFE, 1)

    async def ensure(self, config: api.StreamConfig) -> None:
        """Create the stream unless it exists with this configuration. Raises NatsError."""
        for replicas in self._choices:
            try:
                await self._ensured(config, replicas)
            except APIError as error:
                if error.err_code not in TOO_MANY or replicas == self._choices[-1]:
                    raise
            else:
                return

    async def _ensured(self, config: api.StreamConfig, replicas: int) -> None:
        try:
            await self._jetstream.add_stream(config.evolve(num_replicas=replicas))
        except APIError as error:
            if error.err_code != STREAM_IS_OTHERWISE:
                raise
            there = await self._jetstream.stream_info(config.name or "")
            most = max(replicas, there.config.num_replicas or 1)
            await self._jetstream.update_stream(config.evolve(num_replicas=most))

    async def bucket(self, config: api.KeyValueConfig) -> None:
        """Create the bucket unless it exists. Raises NatsError."""
        with contextlib.suppress(NotFoundError):
            await self._jetstream.key_value(config.bucket)
            return
        for replicas in self._choices:
            try:
                await self._jetstream.create_key_value(config.evolve(replicas=replicas))
            except APIError as error:
                if error.err_code not in TOO_MANY or replicas == self._choices[-1]:
                    raise
            else:
                return

    async def reach(self, buckets: Sequence[str]) -> None:
        """Return once whoever leads each of them has answered. Raises BusError, after some seconds."""
        try:
            await asyncio.gather(*map(self._reach, buckets))
        except (NatsError, OSError) as error:
            raise BusError(str(error)) from error

    async def _reach(self, bucket: str) -> None:
        with contextlib.suppress(NotFoundError):
            await cancellable(self._jetstream.stream_info(f"KV_{bucket}"))

    async def spread(self) -> int:
        """Spread streams that are on fewer servers than possible; returns how many there were. Raises BusError."""
        moved = 0
        for info in await self._all():
            if (info.config.num_replicas or 1) >= self._choices[0]:
                continue
            try:
                await cancellable(
                    self._jetstream.update_stream(info.config.evolve(num_replicas=self._choices[0]))
                )
            except APIError as error:
                if error.err_code not in TOO_MANY:
                    log.warning("cannot keep %s on %d servers: %s", info.config.name, self._choices[0], error)
            except (NatsError, OSError) as error:
                raise BusError(str(error)) from error
            else:
                moved += 1
        return moved

    async def _all(self) -> list[api.StreamInfo]:
        found: list[api.StreamInfo] = []
        try:
            while page := await cancellable(self._jetstream.streams_info(len(found))):
                found.extend(page)
        except (NatsError, OSError) as error:
            raise BusError(str(error)) from error
        return [info for info in found if (info.config.name or "").startswith(OURS)]
