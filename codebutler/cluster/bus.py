"""NATS JetStream as the gateway and the hosts use it; ``streams``, ``buckets``, ``connection`` import nats-py, too.

A publication is repeated, under the same message ID, until the server confirms that it is on disk. A body that is too
large for one message travels in parts. The server keeps a delivered message until it is acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from uuid import uuid4

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError, ServiceUnavailableError

from codebutler.cluster.buckets import BusError, KeyBucket, bus_call, cancellable
from codebutler.cluster.connection import (
    ANSWER_S,
    BLOCK_S,
    LONGEST_RETRY_S,
    PART_BYTES,
    BodyParts,
    FloodGuard,
    Rejections,
    connected_client,
    split_body,
)
from codebutler.cluster.membership import ClusterMembership, answer_subject
from codebutler.cluster.server import server_problem
from codebutler.cluster.streams import JetStreams
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ConfigError, FrameTooLargeError
from codebutler.platform.tasks import beside, wait_for

HEADER_BYTES = 2**10
MAX_BODY_BYTES = 40 * 2**20
ACK_WAIT_S = 10.0
WORKING_S = 3.0
RETRY_S = 0.25
POLL_S = 5.0
NOBODY = "503"
"""The status with which the server itself answers if nobody listens there."""
DUPLICATES_S = 600.0
UNREACHED_S = 10.0
"""Servers choose a new leader sooner. So ours cannot reach the one that leads, while another server may."""
IN_FLIGHT = 512
FLOOD = "ignored for {:g} s, because it sends too much: {}"

log = logging.getLogger("codebutler.cluster")


@dataclass
class DeliveredMessage:
    """A message to be acknowledged; ``seq`` is its place in the stream. ``is_redelivery``: it was delivered before."""

    body: bytes
    seq: int
    is_redelivery: bool
    messages: list[Msg] = field(repr=False)

    async def ack(self) -> None:
        """It is done: the server may forget it. If the acknowledgement is lost, it is delivered again."""
        for message in self.messages:
            with contextlib.suppress(NatsError):
                await cancellable(message.ack_sync(timeout=ANSWER_S))

    async def keep_claimed(self) -> None:
        """Until cancelled, tell the server that it is being worked on, so that nobody else gets it."""
        while True:
            await asyncio.sleep(WORKING_S)
            for message in self.messages:
                with contextlib.suppress(NatsError):
                    await cancellable(message.in_progress())


class Bus:
    """One connection, which reconnects automatically. Create it with ``connected``."""

    def __init__(self, client: Client, rejections: Rejections, clock: Clock, replicas: int) -> None:
        self._client = client
        self._rejections = rejections
        self._jetstream: JetStreamContext = client.jetstream(timeout=ANSWER_S)
        self.clock = clock
        self._reconnected_s = 0.0
        self.streams = JetStreams(self._jetstream, replicas)

    @classmethod
    @asynccontextmanager
    async def connected(
        cls, membership: ClusterMembership, clock: Clock, patience_s: float | None = None
    ) -> AsyncIterator[Bus]:
        """Waits until a server answers. Raises ConfigError if it refuses us or cannot be used, CodeButlerError after
        ``patience_s``."""
        async with connected_client(membership, clock, patience_s) as (client, rejections):
            version = client.connected_server_version
            if why := server_problem((version.major, version.minor, version.patch), client.max_payload):
                raise ConfigError(why)
            yield cls(client, rejections, clock, membership.replicas)

    async def wait_refused(self) -> None:
        """Wait until the servers refuse us for good. Always raises ConfigError."""
        while not self._rejections.final.is_set() and not self._client.is_closed:
            # nats-py does not report that it has given up if sending its remaining data fails.
            await wait_for(self.clock, self._rejections.final, LONGEST_RETRY_S)
        raise self._rejections.error

    async def reconnect(self) -> None:
        """Connect to another server: the present one may be cut off from the others."""
        self._reconnected_s = self.clock.monotonic()
        if self._client.is_connected:
            log.warning("NATS: no answer, trying another server")
            await self._client.force_reconnect()

    async def _reconnect_if_unanswered(self, since_s: float) -> None:
        """Nobody has done what we asked for since then."""
        if self.clock.monotonic() - max(since_s, self._reconnected_s) >= UNREACHED_S:
            await self.reconnect()

    # What is kept: streams

    async def ensure_stream(self, name: str, subjects: str, max_bytes: int) -> None:
        """Create the stream unless it exists. It keeps each message on disk until it is acknowledged, and refuses more
        when full."""
        config = api.StreamConfig(
            name=name,
            subjects=[subjects],
            retention=api.RetentionPolicy.WORK_QUEUE,
            discard=api.DiscardPolicy.NEW,
            max_bytes=max_bytes,
            storage=api.StorageType.FILE,
            duplicate_window=DUPLICATES_S,
        )
        await self._until_done(lambda: self.streams.ensure(config))

    async def ensure_consumer(self, stream: str, name: str, subject: str, in_flight: int = IN_FLIGHT) -> None:
        """Create the durable consumer unless it exists. ``in_flight`` = 1 keeps the order through every fault."""
        config = api.ConsumerConfig(
            durable_name=name,
            filter_subject=subject,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_S,
            max_deliver=-1,
            max_ack_pending=in_flight,
        )
        await self._until_done(lambda: self._jetstream.add_consumer(stream, config))

    async def publish(self, subject: str, body: bytes, message_id: str, *, in_parts: bool = False) -> None:
        """Returns once the server has it on disk. ``in_parts``: its consumer takes several messages at once, so a large
        body may be split. Raises FrameTooLargeError."""
        limit_bytes = MAX_BODY_BYTES if in_parts else self._client.max_payload - HEADER_BYTES
        if len(body) > limit_bytes:
            raise FrameTooLargeError(f"a message of {len(body)} bytes exceeds the limit of {limit_bytes}")
        for number, (piece, part_headers) in enumerate(
            split_body(body, PART_BYTES if in_parts else limit_bytes)
        ):
            headers = {api.Header.MSG_ID.value: f"{message_id}/{number}", **part_headers}
            await self._until_done(partial(self._jetstream.publish, subject, piece, headers=headers))

    async def _until_done(self, work: Callable[[], Awaitable[object]]) -> None:
        """Retry until the servers have done it, whatever prevents it now."""
        wait_s, since_s = RETRY_S, self.clock.monotonic()
        while True:
            try:
                await cancellable(work())
            except (NatsError, OSError) as error:
                if self._client.is_closed:
                    raise BusError("the connection to NATS is closed") from error
                log.warning("NATS: %s; trying again", error or type(error).__name__)
                await self._reconnect_if_unanswered(since_s)
                await self.clock.sleep(wait_s)
                wait_s = min(LONGEST_RETRY_S, wait_s * 2)
            else:
                return

    async def consume(
        self, stream: str, consumer: str, at_once: int = 1
    ) -> AsyncGenerator[DeliveredMessage, None]:
        """The durable consumer's messages, for ever; those that are not acknowledged come again."""
        parts, wait_s, answered_s = BodyParts(), RETRY_S, inf
        subscription = await cancellable(self._jetstream.pull_subscribe_bind(consumer, stream))
        try:
            while True:
                try:
                    messages = await cancellable(subscription.fetch(at_once, timeout=POLL_S))
                except (NatsError, OSError) as error:
                    if self._client.is_closed:
                        return
                    # ServiceUnavailableError: the gateway has not created the consumer yet. It may have to create
                    # thousands, so we do not ask all the time.
                    if isinstance(error, TimeoutError):
                        wait_s, answered_s = RETRY_S, self.clock.monotonic()
                        continue
                    if not isinstance(error, ServiceUnavailableError):
                        log.warning("NATS: %s; trying again", error or type(error).__name__)
                    await self._reconnect_if_unanswered(answered_s)
                    await self.clock.sleep(wait_s)
                    wait_s = min(LONGEST_RETRY_S, wait_s * 2)
                    continue
                wait_s, answered_s = RETRY_S, self.clock.monotonic()
                for message in messages:
                    if complete := parts.add(message):
                        last = complete[-1].metadata
                        body = b"".join(each.data for each in complete)
                        yield DeliveredMessage(body, last.sequence.stream, last.num_delivered > 1, complete)
        finally:
            with contextlib.suppress(NatsError):
                await subscription.unsubscribe()

    async def message_counts(self, stream: str, subjects: str) -> Mapping[str, int]:
        """How many messages the stream has, by subject. Raises BusError."""
        try:
            info = await bus_call(
                self._jetstream.stream_info(stream, subjects_filter=subjects), NotFoundError
            )
        except NotFoundError:
            return {}
        return info.state.subjects or {}

    async def purge(self, stream: str) -> None:
        """Delete all its messages, if the stream exists. Raises BusError."""
        with contextlib.suppress(NotFoundError):
            await bus_call(self._jetstream.purge_stream(stream), NotFoundError)

    async def oldest_message(self, stream: str, subject: str) -> tuple[int, bytes] | None:
        """(place, body) of the oldest message that is not acknowledged; None if there is none. Raises BusError."""
        try:
            getting = self._jetstream.get_msg(stream, seq=1, subject=subject, next=True)
            found = await bus_call(getting, NotFoundError)
        except NotFoundError:
            return None
        return found.seq or 0, found.data or b""

    async def delete_message(self, stream: str, seq: int) -> None:
        """Delete one message. Raises BusError."""
        with contextlib.suppress(NotFoundError):
            await bus_call(self._jetstream.delete_msg(stream, seq), NotFoundError)

    async def last_delivered(self, stream: str, consumer: str) -> int:
        """The place of the latest message that the consumer has handed out; 0 if there is none, or no such consumer.
        Raises BusError."""
        try:
            info = await bus_call(self._jetstream.consumer_info(stream, consumer), NotFoundError)
        except NotFoundError:
            return 0
        return info.delivered.stream_seq if info.delivered else 0

    async def delete_consumer(self, stream: str, consumer: str) -> None:
        """Delete the consumer, if it exists. Raises BusError."""
        with contextlib.suppress(NotFoundError):
            await bus_call(self._jetstream.delete_consumer(stream, consumer), NotFoundError)

    # What is not kept: questions, orders, news

    async def broadcast(self, subject: str, body: bytes) -> None:
        """Publish it to those who listen now."""
        with contextlib.suppress(NatsError):
            await cancellable(self._client.publish(subject, body))

    async def ask(self, subject: str, body: bytes, timeout_s: float = ANSWER_S) -> bytes:
        """The answer. Raises BusError if none comes."""
        answers = answer_subject(subject, uuid4().hex)
        if answers:
            return await bus_call(self._ask_across(subject, body, answers, timeout_s))
        return (await bus_call(self._client.request(subject, body, timeout=timeout_s))).data

    async def _ask_across(self, subject: str, body: bytes, answers: str, timeout_s: float) -> bytes:
        """Ask a host: it cannot answer to our own inbox, so it answers to ``answers``."""
        subscription = await self._client.subscribe(answers, max_msgs=1)
        try:
            await self._client.publish(subject, body, reply=answers)
            message = await subscription.next_msg(timeout_s)
        finally:
            with contextlib.suppress(NatsError):
                await subscription.unsubscribe()
        if message.headers and message.headers.get("Status") == NOBODY:
            raise NoRespondersError
        return message.data

    @asynccontextmanager
    async def listening(
        self,
        subject: str,
        handler: Callable[[str, bytes], Awaitable[bytes | None]],
        floods: FloodGuard | None = None,
    ) -> AsyncIterator[None]:
        """Call ``handler`` with the subject and the body of each message, several at once; it returns the answer.
        ``floods`` says which senders to leave out."""
        tasks: set[asyncio.Task[None]] = set()

        async def answer(message: Msg) -> None:
            reply = await handler(message.subject, message.data)
            if reply is not None and message.reply:
                with contextlib.suppress(NatsError):
                    await cancellable(self._client.publish(message.reply, reply))

        async def on_message(message: Msg) -> None:
            now_s = self.clock.monotonic()
            if floods is not None and not floods.admits(message.subject, len(message.data), now_s):
                return
            task = asyncio.create_task(answer(message), name=f"cluster:{message.subject}")
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        subscriptions = Subscriptions(self._client, on_message)
        await subscriptions.replace([subject])
        try:
            if floods is None:
                yield
            else:
                async with beside(
                    self._block_floods(subject, subscriptions, floods), name=f"floods:{subject}"
                ):
                    yield
        finally:
            with contextlib.suppress(NatsError):
                await subscriptions.close()
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _block_floods(self, subject: str, subscriptions: Subscriptions, floods: FloodGuard) -> None:
        """Until cancelled, unsubscribe from senders that are left out: the server does not send us their messages, so
        they cost us nothing."""
        while True:
            await floods.has_new_blocks.wait()
            while floods.has_new_blocks.is_set():
                floods.has_new_blocks.clear()
                others = floods.allowed_subjects()
                log.warning(FLOOD.format(BLOCK_S, ", ".join(floods.blocked)))
                await self._until_done(partial(subscriptions.replace, others))
                await wait_for(self.clock, floods.has_new_blocks, BLOCK_S)
            floods.unblock_all()
            await self._until_done(partial(subscriptions.replace, [subject]))

    # Leases

    async def bucket(self, name: str, ttl_s: float | None = None, max_bytes: int = -1) -> KeyBucket:
        """A bucket of the key-value store, created unless it exists. Raises BusError."""
        storage = api.StorageType.FILE
        config = api.KeyValueConfig(bucket=name, ttl=ttl_s, max_bytes=max_bytes, storage=storage)
        await bus_call(self.streams.bucket(config))
        return KeyBucket(await bus_call(self._jetstream.key_value(name)))


class Subscriptions:
    """The subjects that a client listens to; ``on_message`` gets the messages."""

    def __init__(self, client: Client, on_message: Callable[[Msg], Awaitable[None]]) -> None:
        self._client = client
        self._on_message = on_message
        self._open: list[Subscription] = []

    async def replace(self, subjects: Sequence[str]) -> None:
        """Listen to these instead, once this returns. Messages that come meanwhile are lost. Raises NatsError."""
        await cancellable(self.close())
        for subject in subjects:
            self._open.append(await cancellable(self._client.subscribe(subject, cb=self._on_message)))
        await cancellable(self._client.flush())

    async def close(self) -> None:
        """Stop listening. Raises NatsError."""
        while self._open:
            await self._open.pop().unsubscribe()
