"""A message that a consumer has got, which may have come in several parts."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass, field

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from codebutler.cluster.buckets import cancellable
from codebutler.cluster.connection import ANSWER_S

PARTS = "Cb-Part"
PART = re.compile(r"([0-9a-f]{32}) ([0-9]{1,2}) ([0-9]{1,2})")
WORKING_S = 3.0


@dataclass
class Delivered:
    """A message that waits for its acknowledgement; ``seq`` is its place in the stream. ``again``: it was delivered
    before."""

    body: bytes
    seq: int
    again: bool
    messages: list[Msg] = field(repr=False)

    async def ack(self) -> None:
        """It is done: the server may forget it. If that cannot be told, it is delivered again."""
        for message in self.messages:
            with contextlib.suppress(NatsError):
                await cancellable(message.ack_sync(timeout=ANSWER_S))

    async def working(self) -> None:
        """Until cancelled: it is being worked on, so nobody else should get it."""
        while True:
            await asyncio.sleep(WORKING_S)
            for message in self.messages:
                with contextlib.suppress(NatsError):
                    await cancellable(message.in_progress())


class BodyParts:
    """Collects the messages of large bodies. What does not make sense is taken for a whole body, which nobody can
    read."""

    def __init__(self) -> None:
        self._found: dict[str, dict[int, Msg]] = {}

    def whole(self, message: Msg) -> list[Msg]:
        """The messages of the body that this one completes; [] while parts are missing."""
        named = PART.fullmatch((message.headers or {}).get(PARTS, ""))
        if named is None:
            return [message]
        name, number, count = named[1], int(named[2]), int(named[3])
        found = self._found.setdefault(name, {})
        found[number] = message
        if len(found) < count:
            return []
        del self._found[name]
        return [found[each] for each in sorted(found)]


def delivered(messages: list[Msg]) -> Delivered:
    """The body that these messages make together."""
    last = messages[-1].metadata
    body = b"".join(message.data for message in messages)
    return Delivered(body, last.sequence.stream, last.num_delivered > 1, messages)
