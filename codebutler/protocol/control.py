"""The control socket: how `codebutler status`, `stop`, `send` and `chat` talk to the running supervisor; and its
messages: requests, inputs and replies, one JSON object per line.

A request gets any number of Said, then Done, Failed or a status. A chat goes both ways: after its request come inputs,
until one side closes. Only the owner can open the socket (0600 in a 0700 directory), and we also check the peer's user
ID.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from codebutler.domain.errors import CodeButlerError, NotRunningError, ProtocolError
from codebutler.domain.model import TurnOutcome
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef
from codebutler.platform.files import reason
from codebutler.platform.system import this_system
from codebutler.protocol.messages import LiveKind

NO_CARD = MessageRef("0.0")
"""Sorts before every card's ref."""
SaidKind = Literal["text", "progress", "card"]

T = TypeVar("T")
LINE_LIMIT_BYTES = 4 * 2**20


class _Request(Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """A request of a command."""


class StatusRequest(_Request, frozen=True, tag="status"):
    """Asks for the status."""


class StopRequest(_Request, frozen=True, tag="stop"):
    """End the turns of one repository, or of ``all``."""

    repo: str


class SendRequest(_Request, frozen=True, tag="send"):
    """Post ``text`` in the repository's channel as the operator; ``wait`` streams the answers."""

    repo: str
    text: str
    wait: bool = False
    thread: MessageRef | None = None


class ReloadRequest(_Request, frozen=True, tag="reload"):
    """The registry or a configuration has changed: read them again."""


class RestartRequest(_Request, frozen=True, tag="restart"):
    """Restart in place."""


class JobsRequest(_Request, frozen=True, tag="jobs"):
    """List the schedule; or run, pause or resume the job ``name`` (``repo/name`` if several have it)."""

    action: Literal["list", "run", "pause", "resume"] = "list"
    name: str = ""


class DashboardRequest(_Request, frozen=True, tag="dashboard"):
    """Asks for a link that opens the dashboard."""


class ChatRequest(_Request, frozen=True, tag="chat"):
    """Write and read everything in one thread, a new one if none is named. Its last ``past`` messages come first."""

    repo: str
    thread: MessageRef | None = None
    past: int = 0


class Say(_Request, frozen=True, tag="say"):
    """In a chat: the operator says this. ``seen``: the newest card that was shown when typing began; the words cannot
    decide a later one."""

    text: str
    seen: MessageRef = NO_CARD


class Press(_Request, frozen=True, tag="press"):
    """In a chat: press a button of the message ``ref``; ``picked`` are the boxes ticked beside it."""

    ref: MessageRef
    action_id: str
    value: str
    picked: tuple[str, ...] = ()


class _Reply(Struct, frozen=True, kw_only=True, tag_field="type"):
    """A reply of the supervisor."""


class StatusReply(_Reply, frozen=True, tag="status"):
    """The status object, as ``status --json`` prints it."""

    status: dict[str, Any]


class JobsReply(_Reply, frozen=True, tag="jobs"):
    """One row per job."""

    jobs: list[dict[str, Any]]


class DashboardReply(_Reply, frozen=True, tag="dashboard"):
    """The dashboard's address, and the same with a one-time login."""

    url: str
    link: str


class Posted(_Reply, frozen=True, tag="posted"):
    """The operator's message is in the channel; its ref starts or continues the thread."""

    channel: ConversationRef
    ref: MessageRef
    thread: MessageRef


class Choice(Struct, frozen=True, kw_only=True):
    """A button of a card, or a ``box`` to tick before the button below it is pressed."""

    label: str
    action_id: str
    value: str
    box: bool = False


class Said(_Reply, frozen=True, tag="said"):
    """Something was said in the thread; the same ``ref`` again replaces it. ``progress``: of passing interest, a turn's
    place in the queue or its current step. A ``card`` waits for one of its ``choices`` while it has any; the choices of
    any other message stop what it reports."""

    text: str
    kind: SaidKind = "text"
    ref: MessageRef = NOWHERE
    choices: tuple[Choice, ...] = ()


class Heard(_Reply, frozen=True, tag="heard"):
    """What the running turn in a chat's thread says and does, as it happens. The answer repeats the text."""

    kind: LiveKind
    text: str


class Past(_Reply, frozen=True, tag="past"):
    """An earlier message of a chat's thread, or one that another person writes there; ``who`` is "" for our own."""

    who: str
    text: str


class ChatOpened(_Reply, frozen=True, tag="opened"):
    """The chat can begin; the earlier messages have been sent. ``thread`` is None if a new one begins."""

    repo: str
    agent: str
    thread: MessageRef | None = None


class Working(_Reply, frozen=True, tag="started"):
    """In a chat: the operator's message ``ref`` is being worked on."""

    ref: MessageRef


class Ended(_Reply, frozen=True, tag="ended"):
    """In a chat: the operator's message ``ref`` has had its outcome; "" if no turn was made of it."""

    ref: MessageRef
    outcome: TurnOutcome


class Done(_Reply, frozen=True, tag="done"):
    """The last reply. ``ok`` is the turn's verdict, if one was waited for."""

    ok: bool = True
    text: str = ""


class Failed(_Reply, frozen=True, tag="failed"):
    """The request failed; ``text`` is the line to show."""

    text: str


ControlRequest = (
    StatusRequest
    | StopRequest
    | SendRequest
    | ReloadRequest
    | RestartRequest
    | JobsRequest
    | DashboardRequest
    | ChatRequest
)
ChatInput = Say | Press
ControlReply = (
    StatusReply
    | JobsReply
    | DashboardReply
    | Posted
    | Said
    | Heard
    | Past
    | ChatOpened
    | Working
    | Ended
    | Done
    | Failed
)


Answer = Callable[[ControlRequest], AsyncIterator[ControlReply]]
"""Yields the replies to one request as they come."""
Converse = Callable[[ChatRequest, AsyncIterator[ChatInput]], AsyncIterator[ControlReply]]
"""The same for a chat, until the inputs end because the other side has gone."""


@asynccontextmanager
async def control_server(path: Path, answer: Answer, converse: Converse) -> AsyncIterator[None]:
    """Serve requests and chats on ``path`` while the context is open. A stale socket file is replaced."""
    path.unlink(missing_ok=True)
    mask = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(
            _Connection(answer, converse).serve, path, limit=LINE_LIMIT_BYTES
        )
    finally:
        os.umask(mask)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


class _Connection:
    """Serves one request per connection."""

    def __init__(self, answer: Answer, converse: Converse) -> None:
        self._answer = answer
        self._converse = converse
        self._decoder = msgspec.json.Decoder(ControlRequest)
        self._inputs: msgspec.json.Decoder[ChatInput] = msgspec.json.Decoder(ChatInput)
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
            replies = self._converse(request, self._inputs_from(reader))
        else:
            replies = self._answer(request)
        try:
            async for reply in replies:
                yield reply
        except CodeButlerError as error:
            yield Failed(text=str(error))

    async def _inputs_from(self, reader: asyncio.StreamReader) -> AsyncIterator[ChatInput]:
        try:
            while line := await reader.readline():
                yield self._inputs.decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            raise ProtocolError(f"unreadable input: {error}") from error


async def ask(path: Path, request: ControlRequest) -> AsyncGenerator[ControlReply, None]:
    """All replies of the running supervisor. Raises NotRunningError if there is none, CodeButlerError if we may not
    ask it, or it could not read the request."""
    line = _line_of(request)
    if len(os.fsencode(path)) > this_system().socket_path_bytes:
        raise NotRunningError  # no supervisor can be there
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=LINE_LIMIT_BYTES)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NotRunningError from error
    except OSError as error:
        raise CodeButlerError(f"cannot open {path}: {reason(error)}") from error
    decoder: msgspec.json.Decoder[ControlReply] = msgspec.json.Decoder(ControlReply)
    try:
        writer.write(line)
        await writer.drain()
        while line := await reader.readline():
            yield decoder.decode(line)
    except (msgspec.DecodeError, ConnectionError) as error:
        raise ProtocolError(f"the supervisor's answer cannot be read: {error}") from error
    finally:
        writer.close()


def _line_of(request: ControlRequest) -> bytes:
    try:
        line = msgspec.json.encode(request) + b"\n"
    except UnicodeEncodeError:
        raise ProtocolError("the text is not valid UTF-8: convert it first") from None
    if len(line) > LINE_LIMIT_BYTES:
        raise ProtocolError(f"the text is too long: send at most {LINE_LIMIT_BYTES // 2**20} MB, or a file")
    return line


async def reply_to(path: Path, request: ControlRequest, kind: type[T]) -> T | None:
    """The running supervisor's reply of that kind; None if it gives none. Raises as ``ask``."""
    async with aclosing(ask(path, request)) as replies:
        async for reply in replies:
            if isinstance(reply, kind):
                return reply
    return None


def _is_owner(sock: socket.socket) -> bool:
    """Whether the peer is our own user; False also if it has gone, because the system cannot say then who it was."""
    try:
        return this_system().peer_uid(sock) in (os.getuid(), 0)
    except OSError:
        return False
