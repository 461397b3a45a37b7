"""An internet of our own, and programs behind the walls that try to reach it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from aiohttp import web
from msgspec.structs import replace

from codebutler_worker.egress.access import NetworkAccess, ProxiedAccess
from codebutler_worker.egress.hosts import Dialer, HostPort
from codebutler_worker.egress.http import Streams
from codebutler_worker.egress.policy import NetworkPolicy
from codebutler_worker.egress.proxy import Rules
from codebutler_worker.egress.service import ModelService
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.port import SandboxPolicy
from tests.loopback import on_loopback
from tests.ordinary import ORDINARY_ID
from tests.programs import require
from tests.walls import ended, walled

PUBLIC = "93.184.216.34"


KEY = "sk-the-real-key"


TOKEN = "codebutler-token"


@dataclass
class Internet:
    """One server that is every public host; ``seen`` are the requests' heads."""

    port: int = 0
    seen: list[web.Request] = field(default_factory=list)
    dialled: list[tuple[str, int]] = field(default_factory=list)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        body = await request.read()
        if request.path.endswith("/echo"):
            return web.json_response(dict(request.headers))
        return web.Response(text=f"{request.method} {request.path_qs} {len(body)} bytes")

    async def resolve(self, host: str, _port: int) -> tuple[str, ...]:
        return self.names.get(host, (PUBLIC,))

    async def connect(self, host: str, port: int, **more: object) -> Streams:
        self.dialled.append((host, port))
        return await asyncio.open_connection("127.0.0.1", self.port, limit=2**16)


@pytest.fixture
async def internet() -> AsyncIterator[Internet]:
    found = Internet()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", found.answer)
    async with on_loopback(app) as found.port:
        yield found


@pytest.fixture
def policy(tmp_path: Path, git_repo: Path) -> SandboxPolicy:
    require("curl")
    return SandboxPolicy(workdir=git_repo, home=tmp_path / "home", env={"PATH": "/usr/bin:/bin"})


@dataclass
class Egress:
    """Opens ways out for the ordinary user that the walls' wrapper is, where we are root."""

    dialer: Dialer = field(default_factory=Dialer)
    logged: set[HostPort] = field(default_factory=set)

    async def open(
        self, rules: Rules, kind: Literal["hosts", "open"], uid: int = ORDINARY_ID
    ) -> ProxiedAccess:
        hosts = tuple(rules.hosts.entries)
        network_policy = NetworkPolicy(kind, hosts, sandboxed=True, dialer=self.dialer, logged=self.logged)
        with tempfile.TemporaryDirectory() as workdir:
            if os.geteuid() == 0:
                os.chown(workdir, uid, -1)
            opened = await network_policy.open(Path(workdir), rules.service)
        assert isinstance(opened, ProxiedAccess)
        return opened


@pytest.fixture
def egress(internet: Internet) -> Egress:
    return Egress(Dialer({}, internet.resolve, internet.connect))


async def inside(
    access: NetworkAccess, policy: SandboxPolicy, script: str, sandbox: BwrapSandbox | None = None
) -> tuple[int, str]:
    sandbox = sandbox or walled()
    asked = replace(policy, network=access.network, env={**policy.env, **access.env})
    return await ended(sandbox.wrap(("sh", "-c", script), asked))


def service(internet: Internet) -> ModelService:
    url = f"http://127.0.0.1:{internet.port}/gateway"
    return ModelService(base_url=url, token=TOKEN, keys=(("x-api-key", KEY),), extra=(("X-Team", "a"),))
