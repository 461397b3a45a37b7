"""The chat's side of the control socket, for a program that waits for the keyboard and the socket at once."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from codebutler.control.messages import ChatRequest, ControlReply, Failed, Wish
from codebutler.control.wire import LINE_LIMIT_BYTES
from codebutler.domain.errors import CodeButlerError, NotRunningError, ProtocolError

LOST = "the supervisor has ended: see `codebutler status`. What you said is kept and is answered when it runs again"


class Link:
    """One chat's connection, blocking. A context manager."""

    def __init__(self, path: Path, request: ChatRequest) -> None:
        """Raises NotRunningError where no supervisor listens."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._decoder: msgspec.json.Decoder[ControlReply] = msgspec.json.Decoder(ControlReply)
        self._held = bytearray()
        try:
            self._socket.connect(str(path))
        except OSError as error:
            # Absent, left behind by one that died, or with a path so long that none starts there.
            self._socket.close()
            raise NotRunningError from error
        self._send(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """To wait for."""
        return self._socket.fileno()

    def wish(self, wish: Wish) -> None:
        """Raises CodeButlerError where the supervisor is gone."""
        self._send(wish)

    def replies(self) -> list[ControlReply]:
        """What has come; waits until something has. Raises CodeButlerError where the supervisor refuses or is gone."""
        while b"\n" not in self._held:
            try:
                piece = self._socket.recv(2**16)
            except ConnectionError:
                piece = b""
            if not piece:
                raise CodeButlerError(LOST)
            self._held += piece
            if len(self._held) > LINE_LIMIT_BYTES:
                raise ProtocolError("the supervisor's answer is longer than it may be")
        whole, _, rest = bytes(self._held).rpartition(b"\n")
        self._held = bytearray(rest)
        return [self._decoded(line) for line in whole.split(b"\n")]

    def _send(self, message: ChatRequest | Wish) -> None:
        try:
            self._socket.sendall(msgspec.json.encode(message) + b"\n")
        except ConnectionError as error:
            raise CodeButlerError(LOST) from error

    def _decoded(self, line: bytes) -> ControlReply:
        try:
            reply = self._decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"the supervisor's answer cannot be read: {error}") from error
        if isinstance(reply, Failed):
            raise CodeButlerError(reply.text)
        return reply
