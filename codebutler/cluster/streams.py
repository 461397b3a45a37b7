"""JetStream streams on as many servers as there are, up to three: created there, and spread when servers are added."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from nats.errors import Error as NatsError
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError

from codebutler.cluster.buckets import BusError, cancellable
from codebutler.cluster.membership import SAFE

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
