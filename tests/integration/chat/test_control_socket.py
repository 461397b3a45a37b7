"""The control socket over a real Unix socket."""

from __future__ import annotations

import asyncio
import stat
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.domain.errors import CodeButlerError, NotRunningError, ProtocolError
from codebutler.protocol.control import (
    LINE_LIMIT_BYTES,
    ChatInput,
    ChatOpened,
    ChatRequest,
    ControlReply,
    ControlRequest,
    Done,
    Failed,
    Said,
    SendRequest,
    StatusReply,
    StatusRequest,
    StopRequest,
    ask,
    control_server,
)


class Scripted:
    """Answers as the supervisor would."""

    async def answer(self, request: ControlRequest) -> AsyncIterator[ControlReply]:
        match request:
            case StatusRequest():
                yield StatusReply(status={"repos": []})
                yield Done()
            case SendRequest(text=text):
                yield Said(text=text * 2)
                yield Done()
            case _:
                raise CodeButlerError("that cannot be done")

    async def chat(
        self, request: ChatRequest, inputs: AsyncIterator[ChatInput]
    ) -> AsyncIterator[ControlReply]:
        yield ChatOpened(repo=request.repo, agent="scripted")
        async for given in inputs:
            yield Said(text=repr(given))


async def replies(path: Path, request: ControlRequest) -> list[ControlReply]:
    return [reply async for reply in ask(path, request)]


async def test_a_request_is_answered_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    async with control_server(path, Scripted().answer, Scripted().chat):
        assert await replies(path, StatusRequest()) == [StatusReply(status={"repos": []}), Done()]
        assert await replies(path, SendRequest(repo="r", text="ab" * 200_000)) == [
            Said(text="ab" * 400_000),
            Done(),
        ]
        assert await replies(path, StopRequest(repo="r")) == [Failed(text="that cannot be done")]


async def test_the_socket_is_its_owners_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    path.write_text("left over by a crash")
    async with control_server(path, Scripted().answer, Scripted().chat):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


PEER = """
import socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
peer.settimeout(60)
try:
    peer.sendall(b'{"do":"status"}\\n')
    sys.stdout.write(peer.recv(1000).decode())
except ConnectionError:
    pass
"""


@pytest.mark.root
async def test_another_user_hears_nothing_even_where_the_files_mode_would_let_them_in() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        path = Path(directory) / "s.sock"
        async with control_server(path, Scripted().answer, Scripted().chat):
            path.chmod(0o666)
            for uid, heard in (("4321", b""), ("0", b"repos")):
                process = await asyncio.create_subprocess_exec(
                    *(
                        "setpriv",
                        f"--reuid={uid}",
                        "--clear-groups",
                        "/usr/bin/python3",
                        "-c",
                        PEER,
                        str(path),
                    ),
                    stdout=asyncio.subprocess.PIPE,
                )
                said, _ = await process.communicate()
                assert process.returncode == 0
                assert (heard in said) if heard else said == b""


async def test_without_a_supervisor_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match="codebutler supervise"):
        await replies(tmp_path / "s.sock", StatusRequest())
    with pytest.raises(NotRunningError, match="codebutler supervise"):
        await replies(tmp_path / ("x" * 100) / "s.sock", StatusRequest())


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b'{"do":"unknown"}\n', b'{"do":"stop"}\n', b"\xff\xfe\n", b"\n"]
)
async def test_an_unreadable_request_gets_a_line_and_the_server_lives_on(tmp_path: Path, line: bytes) -> None:
    import asyncio

    path = tmp_path / "s.sock"
    async with control_server(path, Scripted().answer, Scripted().chat):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(line)
        assert b"unreadable request" in await reader.readline()
        writer.close()
        assert await replies(path, StatusRequest())


async def test_a_home_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not a directory")
    with pytest.raises(CodeButlerError, match=r"cannot open .*home/s\.sock: not a directory"):
        await replies(tmp_path / "home/s.sock", StatusRequest())


@pytest.mark.parametrize(
    ("text", "said"), [("x" * LINE_LIMIT_BYTES, "too long: send at most 4 MB"), ("\udcff", "not valid UTF-8")]
)
async def test_what_the_supervisor_could_not_read_is_not_sent(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "s.sock"
    async with control_server(path, Scripted().answer, Scripted().chat):
        with pytest.raises(ProtocolError, match=said):
            await replies(path, SendRequest(repo="r", text=text))
