"""JetStream's streams: on as many servers as there are, up to three: created there, and spread when servers are added;
and copied with everything in them to another set of servers, since a single server cannot take its streams into a
cluster.

A copy uses the servers' own snapshots, so that each message keeps its place: epochs are such places, and later epochs
must be higher.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError

from codebutler.cluster.buckets import bus_call, cancellable
from codebutler.cluster.connection import connected_client
from codebutler.cluster.membership import (
    GATEWAY,
    LEADER_BUCKET,
    USUAL_REPLICAS,
    ClusterMembership,
    questions_of,
)
from codebutler.cluster.messages import HEARTBEAT_S
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError

TOO_FEW_SERVERS = (10005, 10023, 10074)
"""The server's error codes for: no suitable peers, no room on them, no replicas without a cluster."""
STREAM_CONFIG_DIFFERS = 10058
"""The error code for an existing stream with another configuration."""
OWN_PREFIXES = ("CB_", "KV_CB_")
LIST_S = 3.0
CHUNK_BYTES = 128 * 2**10
LISTEN_S = 2 * HEARTBEAT_S
PATIENCE_S = 30.0
TRIES = 3

log = logging.getLogger("codebutler.cluster")


async def all_streams(client: Client) -> list[api.StreamInfo]:
    """All streams on the servers. Raises CodeButlerError."""
    try:
        return await _listed(client.jetstream(timeout=LIST_S))
    except (NatsError, OSError) as error:
        reason = error.description if isinstance(error, APIError) else error
        raise CodeButlerError(f"the streams cannot be listed: {reason or type(error).__name__}") from error


async def _listed(jetstream: JetStreamContext) -> list[api.StreamInfo]:
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
        found = await bus_call(_listed(self._jetstream))
        return [info for info in found if (info.config.name or "").startswith(OWN_PREFIXES)]


async def copy_streams(old: ClusterMembership, new: ClusterMembership, clock: Clock) -> dict[str, int]:
    """Copy all streams; returns the number of messages by stream. Nothing may use either set of servers. Raises
    CodeButlerError."""
    try:
        async with (
            connected_client(old, clock, PATIENCE_S) as (source, _),
            connected_client(new, clock, PATIENCE_S) as (target, _),
        ):
            await _check_unused(source)
            if existing := await _names(target):
                raise CodeButlerError(
                    f"nothing was copied: the new servers already have streams ({', '.join(existing)})"
                )
            return {
                name: await _copy_with_retries(source, target, name, new.copies)
                for name in await _names(source)
            }
    except (NatsError, OSError) as error:
        raise CodeButlerError(f"NATS: {error or type(error).__name__}") from error


async def _names(client: Client) -> list[str]:
    names = [info.config.name or "" for info in await all_streams(client)]
    return sorted(name for name in names if name.startswith(OWN_PREFIXES))


async def _check_unused(source: Client) -> None:
    """Raises CodeButlerError if the old servers are in use: messages sent to them from now on would be lost."""
    active_hosts: set[str] = set()
    subscription = await source.subscribe(questions_of("*"))
    try:
        async with asyncio.timeout(LISTEN_S):
            while True:
                active_hosts.add((await subscription.next_msg(LISTEN_S)).subject.rpartition(".")[2])
    except TimeoutError:
        await subscription.unsubscribe()
    if active_hosts:
        raise CodeButlerError(f"stop `codebutler host` on {', '.join(sorted(active_hosts))} first")
    query = json.dumps({"last_by_subj": f"$KV.{LEADER_BUCKET}.{GATEWAY}"}).encode()
    found = await _request_raw(source, f"$JS.API.STREAM.MSG.GET.KV_{LEADER_BUCKET}", query)
    if "message" in found and b"KV-Operation" not in b64decode(
        found["message"].get("hdrs", "")
    ):  # the gateway has not released its lease
        raise CodeButlerError(
            "a gateway is active, or has just stopped: stop `codebutler gateway`, and run this again"
        )


async def _copy_with_retries(source: Client, target: Client, name: str, replicas: int) -> int:
    """Copy a stream; retried, since servers that are busy or choosing a leader abandon a copy."""
    for remaining in reversed(range(TRIES)):
        chunks = await source.subscribe(source.new_inbox())
        try:
            return await _copy_stream(source, target, name, replicas, chunks)
        except (NatsError, CodeButlerError) as error:
            log.warning("%s is not copied yet: %s", name, error or type(error).__name__)
            await _request_raw(target, f"$JS.API.STREAM.DELETE.{name}", b"")  # remove an incomplete copy
            if not remaining:
                raise
        finally:
            await chunks.unsubscribe()
    raise AssertionError("the last failure was raised")


async def _copy_stream(source: Client, target: Client, name: str, replicas: int, chunks: Subscription) -> int:
    options = {"deliver_subject": chunks.subject, "no_consumers": False, "chunk_size": CHUNK_BYTES}
    snapshot = await _request(source, f"$JS.API.STREAM.SNAPSHOT.{name}", json.dumps(options).encode())
    # On all its servers from the start: if it is moved later, its consumers stay behind.
    config = snapshot["config"] | {"num_replicas": replicas}
    stream = json.dumps({"config": config, "state": snapshot["state"]}).encode()
    restore_subject = (await _request(target, f"$JS.API.STREAM.RESTORE.{name}", stream))["deliver_subject"]
    while (chunk := await chunks.next_msg(PATIENCE_S)).data:
        if problem := (await target.request(restore_subject, chunk.data, timeout=PATIENCE_S)).data:
            raise CodeButlerError(f"{name} cannot be restored: {problem.decode(errors='replace')}")
        if chunk.reply:  # the server waits for this flow control answer
            await source.publish(chunk.reply, b"")
    count: int = (await _request(target, restore_subject, b""))["state"]["messages"]
    if count != (total := snapshot["state"]["messages"]):
        raise CodeButlerError(f"{name} was not restored completely: {count} of {total} messages")
    return count


async def _request(client: Client, subject: str, body: bytes) -> dict[str, Any]:
    answer = await _request_raw(client, subject, body)
    if "error" in answer:
        raise CodeButlerError(f"{subject}: {answer['error'].get('description', answer['error'])}")
    return answer


async def _request_raw(client: Client, subject: str, body: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((await client.request(subject, body, timeout=PATIENCE_S)).data)
    return answer
