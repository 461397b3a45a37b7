"""Copies everything from one set of NATS servers to another: a single server cannot take its streams into a cluster.

It uses the servers' own snapshots, so that each message keeps its place: epochs are such places, and later epochs must
be higher.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode
from typing import Any

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from codebutler.cluster.buckets import OWN_PREFIXES
from codebutler.cluster.connection import connected_client
from codebutler.cluster.health import read_streams
from codebutler.cluster.host import HEARTBEAT_S
from codebutler.cluster.membership import GATEWAY, LEADER_BUCKET, ClusterMembership, questions_of
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError

CHUNK_BYTES = 128 * 2**10
LISTEN_S = 2 * HEARTBEAT_S
PATIENCE_S = 30.0
TRIES = 3

log = logging.getLogger("codebutler.cluster")


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
    return sorted(each.name for each in await read_streams(client) if each.name.startswith(OWN_PREFIXES))


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
