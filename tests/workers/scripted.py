"""A worker that does as it is told: by ``agent_env`` at its start, by the text of a message later.

Blocking and small on purpose: what the supervisor makes of it is under test, not asyncio.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from codebutler.domain.message import Message, QuestionCard, said
from codebutler.domain.model import MessagePosted, Post, TurnNote, Upload
from codebutler.protocol.messages import (
    MAX_FRAME_BYTES,
    MAX_UPLOAD_BYTES,
    PIECE_BYTES,
    PROTOCOL_VERSION,
    Audit,
    Configure,
    Deliver,
    Fetch,
    Goodbye,
    Heartbeat,
    Hello,
    Log,
    Overview,
    Ready,
    Send,
    Sent,
    Shutdown,
    Stored,
    UploadPiece,
)
from codebutler.protocol.pipe import to_worker_codec

HEADER = struct.Struct(">I")

PARENTS_ONLY = ("_pytest", "aiohttp", "codebutler.chat.slack")


class Pipe:
    """The worker's end, blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._codec = to_worker_codec()
        self._lock = threading.Lock()

    def say(self, message: object) -> None:
        self.raw(self._codec.encode(message))

    def raw(self, data: bytes) -> None:
        with self._lock:
            self._sock.sendall(data)

    def hear(self) -> object:
        (length,) = HEADER.unpack(self._exactly(HEADER.size))
        return self._codec.decode(self._exactly(length))

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._sock.recv(count - len(data))
            if not part:
                os._exit(0)  # the parent is gone
            data += part
        return data


def main(connection: Connection) -> None:
    pipe = Pipe(socket.socket(fileno=os.dup(connection.fileno())))
    connection.close()
    pipe.say(Hello(version=PROTOCOL_VERSION, pid=os.getpid()))
    configure = pipe.hear()
    assert isinstance(configure, Configure)
    env = configure.settings.agent_env
    if "exit_at_start" in env:
        pipe.say(Log(tag="ERR", text=env.get("because", "it was told to")))
        os._exit(int(env["exit_at_start"]))
    if "hang_at_start" in env:
        signal.pause()
    heart = threading.Thread(target=beat, args=(pipe, float(env.get("beat_s", "0.05"))), daemon=True)
    heart.start()
    pipe.say(Ready())
    while True:
        obey(pipe, pipe.hear())


def beat(pipe: Pipe, every_s: float) -> None:
    never = threading.Event()
    while not never.wait(every_s):
        pipe.say(Heartbeat())


def obey(pipe: Pipe, message: object) -> None:
    if isinstance(message, Shutdown):
        pipe.say(Goodbye(reason=message.reason))
        os._exit(0)
    if isinstance(message, Sent):
        pipe.say(Log(tag="INF", text=f"sent {message.op_id} {message.ref}"))
    if isinstance(message, Deliver) and isinstance(message.event, MessagePosted):
        word, _, argument = message.event.text.partition(" ")
        WORDS[word](pipe, message.seq, argument)


def store(pipe: Pipe, seq: int, argument: str) -> None:
    pipe.say(Stored(seq=seq))


def leave(pipe: Pipe, seq: int, argument: str) -> None:
    """Exit without having stored the event; the second life stores it."""
    if Path(argument).exists():
        pipe.say(Stored(seq=seq))
        return
    Path(argument).touch()
    os._exit(3)


def die(pipe: Pipe, seq: int, argument: str) -> None:
    pipe.say(Stored(seq=seq))
    os._exit(int(argument))


def stumble(pipe: Pipe, seq: int, argument: str) -> None:
    pipe.say(Stored(seq=seq))
    raise ArithmeticError(argument)


def freeze(pipe: Pipe, seq: int, argument: str) -> None:
    pipe.say(Stored(seq=seq))
    os.kill(os.getpid(), signal.SIGSTOP)


def flood(pipe: Pipe, seq: int, argument: str) -> None:
    pipe.say(Stored(seq=seq))
    frame = to_worker_codec().encode(Log(tag="INF", text="flood " * 10))
    while True:
        pipe.raw(frame * 100)


def garbage(pipe: Pipe, seq: int, argument: str) -> None:
    pipe.raw(HEADER.pack(7) + b"garbage")


def oversized(pipe: Pipe, seq: int, argument: str) -> None:
    pipe.raw(HEADER.pack(2**31))


def shut_ears(pipe: Pipe, seq: int, argument: str) -> None:
    """Ask for files, and never read an answer."""
    pipe.say(Stored(seq=seq))
    _for_ever(pipe, Fetch(request_id="r" * 90, file_id="F0" * 45))


def swell(pipe: Pipe, seq: int, argument: str) -> None:
    """Name a request as long as a frame may be."""
    pipe.say(Stored(seq=seq))
    _for_ever(pipe, Fetch(request_id="r" * (MAX_FRAME_BYTES - 100), file_id="F0"))


def hollow(pipe: Pipe, seq: int, argument: str) -> None:
    """Operations whose JSON is small beside what it becomes."""
    pipe.say(Stored(seq=seq))
    hollow_card = QuestionCard((), ("",) * 80_000)
    for number in itertools.count():
        pipe.say(Send(op_id=f"op{number}", operation=Post(message=Message(card=hollow_card))))


def ship(pipe: Pipe, seq: int, argument: str) -> None:
    """One large file after the other."""
    pipe.say(Stored(seq=seq))
    piece = b"x" * PIECE_BYTES
    for number in itertools.count():
        for _ in range(MAX_UPLOAD_BYTES // PIECE_BYTES):
            pipe.say(UploadPiece(op_id=f"op{number}", data=piece))
        pipe.say(Send(op_id=f"op{number}", operation=Upload(filename="x", content=b"")))


def scream(pipe: Pipe, seq: int, argument: str) -> None:
    """Log lines as wide as a frame may be."""
    pipe.say(Stored(seq=seq))
    _for_ever(pipe, Log(tag="ERR", text="\u20ac" * (MAX_FRAME_BYTES // 3 - 100)))


def boast(pipe: Pipe, seq: int, argument: str) -> None:
    """Very many turns, told again and again."""
    pipe.say(Stored(seq=seq))
    note = TurnNote(state="running", thread="1", text="x" * 10_000, agent="a", at="")
    _for_ever(pipe, Overview(turns=(note,) * 100))


def print_on(pipe: Pipe, seq: int, argument: str) -> None:
    """Print without end."""
    pipe.say(Stored(seq=seq))
    while True:
        os.write(1, b"x\n" * 8192)


def _for_ever(pipe: Pipe, message: object) -> None:
    frame = to_worker_codec().encode(message)
    while True:
        pipe.raw(frame)


def post(pipe: Pipe, seq: int, argument: str) -> None:
    pipe.say(Stored(seq=seq))
    pipe.say(Send(op_id=f"op{seq}", operation=Post(message=said(argument))))


def audit(pipe: Pipe, seq: int, argument: str) -> None:
    pipe.say(Stored(seq=seq))
    pipe.say(Audit(user="U1", thread="", kind="run", text=argument, decision="allowed", exit_code=0))


def environment(pipe: Pipe, seq: int, argument: str) -> None:
    """Tell what was inherited: variables, open descriptors, the main module, the session."""
    fds = {}
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            fds[link.name] = str(link.readlink())
    fork_server = Path(f"/proc/{os.getppid()}/environ").read_text().split("\0")
    facts = {
        "environ": dict(os.environ),
        "fork_server": [item.partition("=")[0] for item in fork_server if item],
        "fds": fds,
        "main": getattr(sys.modules["__main__"], "__file__", None),
        "leader": os.getsid(0) == os.getpid(),
        "parents": [name for name in sys.modules if name.startswith(PARENTS_ONLY)],
    }
    pipe.say(Stored(seq=seq))
    pipe.say(Log(tag="INF", text=msgspec.json.encode(facts).decode()))


def child(pipe: Pipe, seq: int, argument: str) -> None:
    """Tell what a program of ours says."""
    pipe.say(Stored(seq=seq))
    said = subprocess.run(["/bin/sh", "-c", argument], capture_output=True, text=True, check=False)
    pipe.say(Log(tag="INF", text=said.stdout))


WORDS = {
    "store": store,
    "leave": leave,
    "die": die,
    "freeze": freeze,
    "stumble": stumble,
    "flood": flood,
    "garbage": garbage,
    "oversized": oversized,
    "shut_ears": shut_ears,
    "swell": swell,
    "hollow": hollow,
    "ship": ship,
    "scream": scream,
    "boast": boast,
    "print_on": print_on,
    "post": post,
    "audit": audit,
    "environment": environment,
    "child": child,
}
