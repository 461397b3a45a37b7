"""What JetStream keeps for us: the key-value store, whose small values can be changed only by a writer that knows their
latest revision; and streams, on as many servers as there are, up to three: created there, and spread when servers are
added."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
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

from codebutler.cluster.membership import USUAL_REPLICAS
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError

READ_S = 10.0
"""How long reading a whole bucket may take."""
POLL_S = 0.05

T = TypeVar("T")
TOO_FEW_SERVERS = (10005, 10023, 10074)
"""The server's error codes for: no suitable peers, no room on them, no replicas without a cluster."""
STREAM_CONFIG_DIFFERS = 10058
"""The error code for an existing stream with another configuration."""
OWN_PREFIXES = ("CB_", "KV_CB_")

log = logging.getLogger("codebutler.cluster")


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


async def list_streams(jetstream: JetStreamContext) -> list[api.StreamInfo]:
    """All streams on the servers. Raises NatsError."""
    found: list[api.StreamInfo] = []
    while page := await cancellable(jetstream.streams_info(len(found))):
        found += page
    return found


class JetStreams:
    """Creates and spreads streams and buckets. ``replicas``: on how many servers; 0 = on three, or on one if there are
    fewer than three."""

    def __init__(self, jetstream: JetStreamContext, replicas: int) -> None:
        self._jetstream = jetstream
        self._choices = (replicas,) if replicas else (USUAL_REPLICAS, 1)

    async def ensure(self, config: api.StreamConfig) -> None:
        """Create the stream unless it exists with this configuration. Raises NatsError."""
        await self._create_replicated(lambda replicas: self._create_or_update(config, replicas))

    async def _create_or_update(self, config: api.StreamConfig, replicas: int) -> None:
        try:
            await self._jetstream.add_stream(config.evolve(num_replicas=replicas))
        except APIError as error:
            if error.err_code != STREAM_CONFIG_DIFFERS:
                raise
            existing = await self._jetstream.stream_info(config.name or "")
            copies = max(replicas, existing.config.num_replicas or 1)
            await self._jetstream.update_stream(config.evolve(num_replicas=copies))

    async def bucket(self, config: api.KeyValueConfig) -> None:
        """Create the bucket unless it exists. Raises NatsError."""
        with contextlib.suppress(NotFoundError):
            await self._jetstream.key_value(config.bucket)
            return
        await self._create_replicated(
            lambda replicas: self._jetstream.create_key_value(config.evolve(replicas=replicas))
        )

    async def _create_replicated(self, create: Callable[[int], Awaitable[object]]) -> None:
        """Create it on as many servers as there are. Raises NatsError."""
        for replicas in self._choices:
            try:
                await create(replicas)
            except APIError as error:
                if error.err_code not in TOO_FEW_SERVERS or replicas == self._choices[-1]:
                    raise
            else:
                return

    async def ping_leaders(self, buckets: Sequence[str]) -> None:
        """Return once whoever leads each of them has answered. Raises BusError, after some seconds."""
        await asyncio.gather(*map(self._ping_leader, buckets))

    async def _ping_leader(self, bucket: str) -> None:
        with contextlib.suppress(NotFoundError):
            await bus_call(self._jetstream.stream_info(f"KV_{bucket}"), NotFoundError)

    async def spread(self) -> int:
        """Spread streams that are on fewer servers than possible; returns how many there were. Raises BusError."""
        moved = 0
        for info in await self._all():
            if (info.config.num_replicas or 1) >= self._choices[0]:
                continue
            try:
                wider = info.config.evolve(num_replicas=self._choices[0])
                await bus_call(self._jetstream.update_stream(wider), APIError)
            except APIError as error:
                if error.err_code not in TOO_FEW_SERVERS:
                    log.warning("cannot keep %s on %d servers: %s", info.config.name, self._choices[0], error)
            else:
                moved += 1
        return moved

    async def _all(self) -> list[api.StreamInfo]:
        found = await bus_call(list_streams(self._jetstream))
        return [info for info in found if (info.config.name or "").startswith(OWN_PREFIXES)]
