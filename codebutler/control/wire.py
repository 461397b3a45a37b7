"""The control socket: how `codebutler status`, `stop`, `send` and `chat` talk to the running supervisor.

One JSON object per line. A request is answered by any number of Said, then by Done, Failed or a status. A chat goes
both ways: after its request come wishes, until one side closes.
The socket is the owner's alone (0600 in a 0700 directory), and the peer's user ID is checked besides.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from codebutler.config.paths import SOCKET_PATH_BYTES
from codebutler.errors import CodeButlerError, NotRunningError, ProtocolError
from codebutler.protocol.messages import LiveKind

SaidKind = Literal["text", "progress", "card"]
LINE_LIMIT_BYTES = 4 * 2**20
_PEER = struct.Struct("3i")


class _Request(Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """From a command."""


class StatusRequest(_Request, frozen=True, tag="status"):
    """What runs?"""


class StopRequest(_Request, frozen=True, tag="stop"):
    """End the turns of one repository, or of ``all``."""

    repo: str


class SendRequest(_Request, frozen=True, tag="send"):
    """Say ``text`` in the repository's channel as the operator; ``wait`` streams what is answered."""

    repo: str
    text: str
    wait: bool = False
    thread_ts: str | None = None


class ReloadRequest(_Request, frozen=True, tag="reload"):
    """The registry or a configuration changed: read them again."""


class JobsRequest(_Request, frozen=True, tag="jobs"):
    """What is scheduled; or run, pause or resume the job ``name`` (``repo/name`` where several have it)."""

    action: Literal["list", "run", "pause", "resume"] = "list"
    name: str = ""


class DashboardRequest(_Request, frozen=True, tag="dashboard"):
    """A link that opens the dashboard."""


class ChatRequest(_Request, frozen=True, tag="chat"):
    """Say and hear everything in one thread, a new one if none is named. First come its last ``past`` messages."""

    repo: str
    thread_ts: str | None = None
    past: int = 0


class Say(_Request, frozen=True, tag="say"):
    """In a chat: the operator says this."""

    text: str


class Press(_Request, frozen=True, tag="press"):
    """In a chat: press a button of the message ``ts``; ``picked`` are the boxes ticked beside it."""

    ts: str
    action_id: str
    value: str
    picked: tuple[str, ...] = ()


class _Reply(Struct, frozen=True, kw_only=True, tag_field="type"):
    """From the supervisor."""


class StatusReply(_Reply, frozen=True, tag="status"):
    """The contract's status object."""

    status: dict[str, Any]


class JobsReply(_Reply, frozen=True, tag="jobs"):
    """One row for each job."""

    jobs: list[dict[str, Any]]


class DashboardReply(_Reply, frozen=True, tag="dashboard"):
    """The dashboard's address, and the same with what lets a browser in, once."""

    url: str
    link: str


class Posted(_Reply, frozen=True, tag="posted"):
    """The operator's message stands in the channel; its ts starts or continues the thread."""

    channel: str
    ts: str
    thread_ts: str


class Choice(Struct, frozen=True, kw_only=True):
    """A button of a card, or a ``box`` to tick before the button below it is pressed."""

    label: str
    action_id: str
    value: str
    box: bool = False


class Said(_Reply, frozen=True, tag="said"):
    """Something was said in the thread; the same ``ts`` again replaces it. ``progress`` is of passing interest: where
    a turn is in line, or what it does. A ``card`` waits for one of its ``choices`` while it has any; those of anything
    else end what it tells of."""

    text: str
    kind: SaidKind = "text"
    ts: str = ""
    choices: tuple[Choice, ...] = ()


class Heard(_Reply, frozen=True, tag="heard"):
    """What the turn that runs in a chat's thread says and does, as it comes. The answer says the text again."""

    kind: LiveKind
    text: str


class Past(_Reply, frozen=True, tag="past"):
    """An earlier message of a chat's thread, or one that somebody else writes there; ``who`` is "" for our own."""

    who: str
    text: str


class Opened(_Reply, frozen=True, tag="opened"):
    """The chat can begin; what was to be told of the past is told. ``thread_ts`` is None if a new one begins."""

    repo: str
    agent: str
    thread_ts: str | None = None


class Ended(_Reply, frozen=True, tag="ended"):
    """In a chat: the operator's message ``ts`` has had its outcome; "" where it got nowhere."""

    ts: str
    outcome: Literal["done", "failed", "stopped"]


class Done(_Reply, frozen=True, tag="done"):
    """That was all. ``ok`` is the turn's verdict where one was waited for."""

    ok: bool = True
    text: str = ""


class Failed(_Reply, frozen=True, tag="failed"):
    """It cannot be done; ``text`` is the line to show."""

    text: str


ControlRequest = (
    StatusRequest | StopRequest | SendRequest | ReloadRequest | JobsRequest | DashboardRequest | ChatRequest
)
Wish = Say | Press
ControlReply = (
    StatusReply | JobsReply | DashboardReply | Posted | Said | Heard | Past | Opened | Ended | Done | Failed
)


class Control(Protocol):
    """What the parent offers on the socket."""

    def answer(self, request: ControlRequest) -> AsyncIterator[ControlReply]:
        """The replies to one request, as they come, until there is none left."""

    def chat(self, request: ChatRequest, wishes: AsyncIterator[Wish]) -> AsyncIterator[ControlReply]:
        """Until ``wishes`` end: the other side has gone."""


@asynccontextmanager
async def control_server(path: Path, control: Control) -> AsyncIterator[None]:
    """Serve ``control`` on ``path`` while the context lives. A stale socket file is replaced."""
    path.unlink(missing_ok=True)
    mask = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(_Connection(control).serve, path, limit=LINE_LIMIT_BYTES)
    finally:
        os.umask(mask)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


class _Connection:
    """Serves one request per connection."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._decoder = msgspec.json.Decoder(ControlRequest)
        self._wishes: msgspec.json.Decoder[Wish] = msgspec.json.Decoder(Wish)
        self._encoder = msgspec.json.Encoder()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not _is_owner(writer.get_extra_info("socket")):
                return
            async for reply in self._replies(reader):
                writer.write(self._encoder.encode(reply) + b"\n")
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    async def _replies(self, reader: asyncio.StreamReader) -> AsyncIterator[ControlReply]:
        try:
            request = self._decoder.decode(await reader.readline())
        except (msgspec.DecodeError, ValueError) as error:
            yield Failed(text=f"unreadable request: {error}")
            return
        if isinstance(request, ChatRequest):
            replies = self._control.chat(request, self._wished(reader))
        else:
            replies = self._control.answer(request)
        try:
            async for reply in replies:
                yield reply
        except CodeButlerError as error:
            yield Failed(text=str(error))

    async def _wished(self, reader: asyncio.StreamReader) -> AsyncIterator[Wish]:
        try:
            while line := await reader.readline():
                yield self._wishes.decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            raise ProtocolError(f"unreadable wish: {error}") from error


async def ask(path: Path, request: ControlRequest) -> AsyncGenerator[ControlReply, None]:
    """Every reply of the running supervisor. Raises NotRunningError where none listens."""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise NotRunningError  # none starts there
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=LINE_LIMIT_BYTES)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NotRunningError from error
    decoder: msgspec.json.Decoder[ControlReply] = msgspec.json.Decoder(ControlReply)
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        await writer.drain()
        while line := await reader.readline():
            yield decoder.decode(line)
    except (msgspec.DecodeError, ConnectionError) as error:
        raise ProtocolError(f"the supervisor's answer cannot be read: {error}") from error
    finally:
        writer.close()


def _is_owner(sock: socket.socket) -> bool:
    """Linux tells who is on the other side (SO_PEERCRED); elsewhere the socket's mode decides alone."""
    if not sys.platform.startswith("linux"):
        return True
    _, uid, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return uid in (os.getuid(), 0)
