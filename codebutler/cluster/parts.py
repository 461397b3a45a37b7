"""Bodies that are too large for one NATS message, split into several."""

from __future__ import annotations

import re
from uuid import uuid4

from nats.aio.msg import Msg

PART_BYTES = 700 * 2**10
"""Below a NATS server's default limit of 1 MiB."""
PARTS = "Cb-Part"
PART = re.compile(r"([0-9a-f]{32}) ([0-9]{1,2}) ([0-9]{1,2})")


def pieces_of(body: bytes, part_bytes: int) -> list[tuple[bytes, dict[str, str]]]:
    """Each message's content and headers, in order."""
    pieces = [body[at : at + part_bytes] for at in range(0, len(body), part_bytes)]
    if len(pieces) == 1:
        return [(body, {})]
    whole = uuid4().hex
    return [(piece, {PARTS: f"{whole} {number} {len(pieces)}"}) for number, piece in enumerate(pieces)]


class BodyParts:
    """Collects the messages of large bodies. A message with invalid headers counts as a whole body, which then cannot
    be decoded."""

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
