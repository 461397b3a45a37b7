"""`codebutler cluster create`, `invite`, `remove` and `codebutler host join`, over a server that they configured."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from codebutler.cluster.bus import Bus
from codebutler.cluster.membership import membership_from_token, read_membership
from codebutler.cluster.server import CertificateMaker
from codebutler.config.paths import Home
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import CodeButlerError
from tests.commands import output_of
from tests.e2e.house import command
from tests.natsserver import answers_at, free_port
from tests.programs import require
from tests.seam import DEADLINE_S

CLOCK = SystemClock()


@dataclass
class Machines:
    """A home for each."""

    root: Path

    async def run(self, home: str, *arguments: str, typed: str = "", check: bool = True) -> str:
        env = os.environ | {"CODEBUTLER_HOME": str(self.root / home)}
        return await output_of(*command(*arguments), env=env, check=check, typed=typed)

    def read(self, home: str, name: str) -> str:
        path = self.root / home / name
        assert path.stat().st_mode & 0o777 == 0o600
        return path.read_text()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[None]:
    """As the command says: in its folder."""
    process = await asyncio.create_subprocess_exec(
        str(require("nats-server")), "-c", "nats.conf", "-l", "log", cwd=folder
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def test_a_machine_joins_with_one_line_and_is_removed_with_one(tmp_path: Path) -> None:
    machines, port = Machines(tmp_path), free_port()
    told = await machines.run("gateway", "cluster", "create", "--server", f"127.0.0.1:{port}")
    folder = tmp_path / "gateway" / "nats"
    assert f"cd {folder} && nats-server -c nats.conf" in told
    machines.read("gateway", "cluster.json")
    machines.read("gateway", "cluster-authority.json")
    async with serving(folder):
        said = await machines.run("gateway", "cluster", "invite", "laptop")
        token = next(each for each in said.splitlines() if each.startswith("cbj1."))
        assert len(token) < 4000  # a terminal's longest line is 4095 characters
        joined = await machines.run("laptop", "host", "join", typed=f"{token}\n")
        assert "This machine is now the host laptop" in joined
        assert token not in joined
        written = json.loads(machines.read("laptop", "cluster.json"))
        assert written["name"] == "laptop"
        assert written["seed"].startswith("SU")
        assert "the cluster: add --replace" in await machines.run(
            "gateway", "cluster", "invite", "laptop", check=False
        )
        assert "a gateway's home" in await machines.run("gateway", "host", "join", token, check=False)
        removed = await machines.run("gateway", "cluster", "remove", "laptop")
        assert "its credential and its token are refused" in removed
        assert "no gateway answered" in removed
        assert "no host named laptop" in await machines.run(
            "gateway", "cluster", "remove", "laptop", check=False
        )
        again = await machines.run("desk", "host", "join", typed=token, check=False)
        assert "the NATS servers refuse laptop: it was removed" in again
        assert not (tmp_path / "desk" / "cluster.json").exists()
        seeds = [membership_from_token(token).seed, token]
        logs = [each.read_text(errors="replace") for each in tmp_path.rglob("*log*") if each.is_file()]
        assert not [log for log in logs for secret in seeds if secret in log]


async def test_a_cluster_is_made_once(tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    await machines.run("gateway", "cluster", "create")
    before = machines.read("gateway", "cluster-authority.json")
    assert "already exists" in await machines.run("gateway", "cluster", "create", check=False)
    assert machines.read("gateway", "cluster-authority.json") == before
    assert "is not a valid host name" in await machines.run(
        "gateway", "cluster", "invite", "gateway", check=False
    )
    assert "run this at the gateway" in await machines.run(
        "elsewhere", "cluster", "invite", "laptop", check=False
    )


async def test_servers_for_other_machines_are_encrypted_and_three_trust_each_other(tmp_path: Path) -> None:
    require("openssl")
    machines = Machines(tmp_path)
    names = [option for each in ("one", "two", "three") for option in ("--server", f"{each}.example")]
    told = await machines.run("gateway", "cluster", "create", *names)
    assert "on two.example (copy the folder there)" in told
    member = read_membership(Home(tmp_path / "gateway"), gateway=True)
    assert member.servers == tuple(f"tls://{each}.example:4222" for each in ("one", "two", "three"))
    folder = tmp_path / "gateway" / "nats" / "one.example-4222"
    config = json.loads((folder / "nats.conf").read_text())
    assert config["tls"]["handshake_first"] is True
    assert config["cluster"]["tls"]["verify"] is True
    checked = await output_of(
        str(require("nats-server")), "-t", "-c", "nats.conf", env=os.environ, cwd=folder
    )
    assert "is valid" in checked
    two = ("--server", "one.example", "--server", "two.example")
    assert "3 or 5" in await machines.run("other", "cluster", "create", *two, check=False)


async def test_mutual_tls_keeps_out_who_has_no_certificate(tmp_path: Path) -> None:
    require("openssl")
    maker, machines, port = CertificateMaker(), Machines(tmp_path), free_port()
    authority = maker.authority()
    for name, made in (("ca", authority), ("desk", maker.server(authority, ("desk",)))):
        (tmp_path / f"{name}.pem").write_bytes(made.certificate)
        (tmp_path / f"{name}-key.pem").write_bytes(made.key)
    certificate = {
        "clientCertificate": str(tmp_path / "desk.pem"),
        "clientKey": str(tmp_path / "desk-key.pem"),
    }
    server = ("--server", f"127.0.0.1:{port}", "--client-ca", str(tmp_path / "ca.pem"))
    await machines.run("gateway", "cluster", "create", *server)
    path = tmp_path / "gateway" / "cluster.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | certificate))
    async with serving(tmp_path / "gateway" / "nats"):
        said = await machines.run("gateway", "cluster", "invite", "laptop")
        token = next(each for each in said.splitlines() if each.startswith("cbj1."))
        assert str(tmp_path) not in str(membership_from_token(token))
        with pytest.raises(CodeButlerError, match="cannot connect"):
            async with Bus.connected(membership_from_token(token), CLOCK, 3.0):
                raise AssertionError("let in")
        options = ("--certificate", str(tmp_path / "desk.pem"), "--key", str(tmp_path / "desk-key.pem"))
        await machines.run("laptop", "host", "join", *options, typed=token)
        async with Bus.connected(read_membership(Home(tmp_path / "laptop"), gateway=False), CLOCK):
            pass


async def test_a_server_of_another_authority_and_one_without_tls_get_no_credential(tmp_path: Path) -> None:
    require("openssl")
    machines, port = Machines(tmp_path), free_port()
    maker = CertificateMaker()
    (tmp_path / "ca.pem").write_bytes(maker.authority().certificate)
    await machines.run(
        "gateway",
        "cluster",
        "create",
        "--server",
        f"127.0.0.1:{port}",
        "--client-ca",
        str(tmp_path / "ca.pem"),
    )
    member = read_membership(Home(tmp_path / "gateway"), gateway=True)
    heard = bytearray()

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":8388608,"nonce":"n"}\r\n')
        heard.extend(await reader.read(4096))
        writer.close()

    async with await asyncio.start_server(pretend, "127.0.0.1", port):
        with pytest.raises(CodeButlerError, match="cannot connect"):
            async with Bus.connected(member, CLOCK, 2.0):
                raise AssertionError("let in")
    assert heard[:1] == b"\x16"  # a TLS handshake; nothing was said in the clear
    assert member.credential.encode() not in heard
    folder = tmp_path / "gateway" / "nats"
    false = maker.server(maker.authority(), ("127.0.0.1",))
    (folder / "server.pem").write_bytes(false.certificate)
    (folder / "server-key.pem").write_bytes(false.key)
    async with serving(folder):
        async with asyncio.timeout(DEADLINE_S):
            while not await answers_at(port):  # noqa: ASYNC110 - a server tells nobody
                await asyncio.sleep(0.05)
        with pytest.raises(CodeButlerError, match="certificate"):
            async with Bus.connected(member, CLOCK, 3.0):
                raise AssertionError("let in")
