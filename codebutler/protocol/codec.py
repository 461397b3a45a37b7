"""Bytes to messages and back: a frame is a 4-byte big-endian length and that many bytes of JSON."""

from __future__ import annotations

import struct
from typing import Generic, TypeVar

import msgspec

from codebutler.domain.errors import FrameTooLargeError, ProtocolError
from codebutler.protocol.messages import MAX_DELIVERED_BYTES, MAX_FRAME_BYTES, ToParent, ToWorker

HEADER = struct.Struct(">I")
M = TypeVar("M")


class Codec(Generic[M]):
    """Encodes any message; decodes only those of the union ``kind``."""

    def __init__(
        self, kind: object, max_frame_bytes: int = MAX_FRAME_BYTES, max_sent_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._max_sent_bytes = max_sent_bytes
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[M] = msgspec.json.Decoder(kind)

    def encode(self, message: object) -> bytes:
        """One whole frame. Raises FrameTooLargeError before anything is written."""
        body = self._encoder.encode(message)
        _check(len(body), self._max_sent_bytes)
        return HEADER.pack(len(body)) + body

    def decode(self, body: bytes) -> M:
        """The message in a frame's body. Raises ProtocolError for anything that is not one of the union."""
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"unreadable message on the pipe: {error}") from error

    def check_length(self, length: int) -> None:
        """Raise FrameTooLargeError if a body of ``length`` bytes may not travel."""
        _check(length, self.max_frame_bytes)


def _check(length: int, limit: int) -> None:
    if length > limit:
        raise FrameTooLargeError(f"a frame of {length} bytes exceeds the limit of {limit}")


def to_worker_codec() -> Codec[ToWorker]:
    """What a worker reads."""
    return Codec(ToWorker, max_frame_bytes=MAX_DELIVERED_BYTES)


def to_parent_codec() -> Codec[ToParent]:
    """What the parent reads."""
    return Codec(ToParent, max_sent_bytes=MAX_DELIVERED_BYTES)
