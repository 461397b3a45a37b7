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

from codebutler.cluster.connection import connected_client
from codebutler.cluster.host import BEAT_S
from codebutler.cluster.membership import ClusterMembership
from codebutler.cluster.readings import read_streams
from codebutler.cluster.streams import OURS
from codebutler.cluster.subjects import GATEWAY, LEADER_BUCKET, questions_of
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError

CHUNK_BYTES = 128 * 2**10
LISTEN_S = 2 * BEAT_S
PATIENCE_S = 30.0
TRIES = 3

log = logging.getLogger("codebutler.cluster")


async def copied(old: ClusterMembership, new: ClusterMembership, clock: Clock) -> dict[str, int]:
    """Copy all streams; returns the number of messages by stream. Nothing may use either set of servers. Raises
    CodeButlerError."""
    try:
        async with (
            connected_client(old, clock, PATIENCE_S) as (source, _),
            connected_client(new, clock, PATIENCE_S) as (target, _),
        ):
            await _refuse_used(source)
            if there := await _names(target):
                raise CodeButlerError(
                    f"nothing was copied: the new servers already have streams ({', '.join(there)})"
                )
            return {name: await _copied(source, target, name, new.copies) for name in await _names(source)}
    except (NatsError, OSError) as error:
        raise CodeButlerError(f"NATS: {error or type(error).__name__}") from error


async def _names(client: Client) -> list[str]:
    return sorted(each.name for each in await read_streams(client) if each.name.startswith(OURS))


async def _refuse_used(source: Client) -> None:
    """Raises CodeButlerError if the old servers are in use: messages sent to them from now on would be lost."""
    heard: set[str] = set()
    subscription = await source.subscribe(questions_of("*"))
    try:
        async with asyncio.timeout(LISTEN_S):
            while True:
                heard.add((await subscription.next_msg(LISTEN_S)).subject.rpartition(".")[2])
    except TimeoutError:
        await subscription.unsubscribe()
    if heard:
        raise CodeButlerError(f"stop `codebutler host` on {', '.join(sorted(heard))} first")
    asked = json.dumps({"last_by_subj": f"$KV.{LEADER_BUCKET}.{GATEWAY}"}).encode()
    found = await _asked(source, f"$JS.API.STREAM.MSG.GET.KV_{LEADER_BUCKET}", asked)
    if "message" in found and b"KV-Operation" not in b64decode(
        found["message"].get("hdrs", "")
    ):  # the gateway has not released its lease
        raise CodeButlerError(
            "a gateway is active, or has just stopped: stop `codebutler gateway`, and run this again"
        )


async def _copied(source: Client, target: Client, name: str, replicas: int) -> int:
    """Copy a stream; retried, since servers that are busy or choosing a leader abandon a copy."""
    for left in reversed(range(TRIES)):
        chunks = await source.subscribe(source.new_inbox())
        try:
            return await _copy(source, target, name, replicas, chunks)
        except (NatsError, CodeButlerError) as error:
            log.warning("%s is not copied yet: %s", name, error or type(error).__name__)
            await _asked(target, f"$JS.API.STREAM.DELETE.{name}", b"")  # remove an incomplete copy
            if not left:
                raise
        finally:
            await chunks.unsubscribe()
    raise AssertionError("the last failure was raised")


async def _copy(source: Client, target: Client, name: str, replicas: int, chunks: Subscription) -> int:
    wanted = {"deliver_subject": chunks.subject, "no_consumers": False, "chunk_size": CHUNK_BYTES}
    taken = await _done(source, f"$JS.API.STREAM.SNAPSHOT.{name}", json.dumps(wanted).encode())
    # On all its servers from the start: if it is moved later, its consumers stay behind.
    config = taken["config"] | {"num_replicas": replicas}
    stream = json.dumps({"config": config, "state": taken["state"]}).encode()
    place = (await _done(target, f"$JS.API.STREAM.RESTORE.{name}", stream))["deliver_subject"]
    while (chunk := await chunks.next_msg(PATIENCE_S)).data:
        if said := (await target.request(place, chunk.data, timeout=PATIENCE_S)).data:
            raise CodeButlerError(f"{name} cannot be restored: {said.decode(errors='replace')}")
        if chunk.reply:  # the server waits for this flow control answer
            await source.publish(chunk.reply, b"")
    count: int = (await _done(target, place, b""))["state"]["messages"]
    if count != (total := taken["state"]["messages"]):
        raise CodeButlerError(f"{name} was not restored completely: {count} of {total} messages")
    return count


async def _done(client: Client, subject: str, body: bytes) -> dict[str, Any]:
    answer = await _asked(client, subject, body)
    if "error" in answer:
        raise CodeButlerError(f"{subject}: {answer['error'].get('description', answer['error'])}")
    return answer


async def _asked(client: Client, subject: str, body: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((await client.request(subject, body, timeout=PATIENCE_S)).data)
    return answer
