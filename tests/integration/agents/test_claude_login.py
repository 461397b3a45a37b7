"""The real Claude Code and Anthropic's own address: with a login it speaks through our proxy, and we do not listen;
with a key we speak for it."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from codebutler.config.schema import ClaudeSection, SandboxSection
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import Finished, TurnRequest
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.egress.hosts import Dialer
from codebutler_worker.egress.http import Streams, both_ways
from codebutler_worker.egress.policy import NetworkPolicy, for_agents
from tests.modelserver.server import ModelServer, Reply
from tests.programs import require
from tests.walls import walled

API = "api.anthropic.com"
PUBLIC = "160.79.104.10"


def certificate(directory: Path) -> tuple[Path, ssl.SSLContext]:
    """One for the API's name, and a server that has it."""
    shown, key = directory / "api.pem", directory / "api.key"
    options = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    names = ("-subj", f"/CN={API}", "-addext", f"subjectAltName=DNS:{API}")
    files = ("-keyout", str(key), "-out", str(shown))
    subprocess.run(
        [str(require("openssl")), "req", *options, *names, *files], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown, key)
    return shown, context


LOGIN = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-of-a-subscription"}
KEY = {"ANTHROPIC_API_KEY": "sk-ant-the-key"}


@pytest.mark.parametrize(
    ("held", "dialled", "keys"), [(LOGIN, PUBLIC, {""}), (KEY, API, {"sk-ant-the-key"})], ids=["login", "key"]
)
async def test_it_reaches_anthropic_and_asks_for_nobody_else(
    tmp_path: Path, git_repo: Path, held: dict[str, str], dialled: str, keys: set[str]
) -> None:
    binary = require("claude")
    require("bwrap")
    shown, context = certificate(git_repo)
    (tmp_path / "home").mkdir()
    asked: list[tuple[str, int]] = []
    open_ends: list[asyncio.StreamWriter] = []
    async with ModelServer() as model:
        port = int(model.url.rpartition(":")[2])

        async def api(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far = await asyncio.open_connection("127.0.0.1", port)
            open_ends.extend((writer, far[1]))
            with suppress(asyncio.CancelledError):
                await both_ways((reader, writer), far)

        server = await asyncio.start_server(api, "127.0.0.1", 0, ssl=context)

        async def resolve(host: str, _port: int) -> tuple[str, ...]:
            return (PUBLIC,) if host == API else ()

        async def connect(host: str, at: int, **more: object) -> Streams:
            asked.append((host, at))
            return await asyncio.open_connection(*server.sockets[0].getsockname(), **more)  # type: ignore[arg-type]

        env = {**held, "NODE_EXTRA_CA_CERTS": str(shown)}
        settings = ClaudeSection(binary=str(binary))
        chosen = for_agents(SandboxSection(), "bwrap", env)
        network_policy = NetworkPolicy(chosen.kind, sandboxed=True, dialer=Dialer(env, resolve, connect))
        backend = ClaudeBackend(
            settings, AgentContext(walled(), SystemClock(), network_policy), tmp_path / "home", env
        )
        model.play(Reply("Through."))
        turn = TurnRequest(turn_id="t", conversation="c", prompt="go", workdir=git_repo)
        async with server, asyncio.timeout(60):
            *_, last = [event async for event in backend.start(turn)]
        assert isinstance(last, Finished)
        assert (last.ok, last.text) == (True, "Through.")
        assert set(asked) == {(dialled, 443)}
        assert set(model.keys) == keys
        assert not network_policy.logged
        await backend.close()
        for end in open_ends:
            end.transport.abort()
        await asyncio.gather(*(end.wait_closed() for end in open_ends), return_exceptions=True)
