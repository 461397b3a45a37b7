"""The way out of the walls, with real programs: hosts on the list, nothing else, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler_worker.egress.access import HELD_AT_MOST
from codebutler_worker.egress.hosts import Dialer, Hosts
from codebutler_worker.egress.policy import NetworkPolicy
from codebutler_worker.egress.proxy import Rules
from codebutler_worker.sandbox.port import ProxySocket, SandboxPolicy
from tests.integration.egress.outside import (
    PUBLIC,
    TOKEN,
    Egress,
    Internet,
    egress,
    inside,
    internet,
    policy,
    service,
)
from tests.ordinary import give_away
from tests.programs import require
from tests.walls import ended, walled

__all__ = ["egress", "internet", "policy"]


async def test_a_host_on_the_list_is_reached(
    egress: Egress, internet: Internet, policy: SandboxPolicy
) -> None:
    async with await egress.open(Rules(Hosts(("docs.example.org",))), "hosts") as access:
        code, said = await inside(access, policy, "curl -sS http://docs.example.org/a?b=c -d x=1")
    assert (code, said) == (0, "POST /a?b=c 3 bytes")
    assert internet.seen[0].headers["Host"] == "docs.example.org"
    assert internet.dialled == [(PUBLIC, 80)]


async def test_a_tunnel_to_a_host_on_the_list_carries_anything(
    egress: Egress, internet: Internet, policy: SandboxPolicy
) -> None:
    async with await egress.open(Rules(Hosts(("*.example.org",))), "hosts") as access:
        command = "curl -sS --proxytunnel http://docs.example.org:443/tunnelled"
        assert await inside(access, policy, command) == (0, "GET /tunnelled 0 bytes")
    assert internet.dialled == [(PUBLIC, 443)]


async def test_everything_else_is_refused_with_what_to_do(
    egress: Egress, internet: Internet, policy: SandboxPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    async with await egress.open(Rules(Hosts(("docs.example.org",))), "hosts") as access:
        _, plain = await inside(access, policy, "curl -sS http://evil.example.com/")
        code, tunnel = await inside_again(egress, policy, "curl -sSv https://evil.example.com/ 2>&1")
    assert "does not let this agent reach evil.example.com:80" in plain
    assert 'set sandbox.network to "open"' in plain
    assert code != 0
    assert "403 evil.example.com is not in sandbox.hosts" in tunnel
    assert internet.dialled == []
    assert "access to evil.example.com:443" in caplog.text


async def inside_again(egress: Egress, policy: SandboxPolicy, script: str) -> tuple[int, str]:
    async with await egress.open(Rules(Hosts(("docs.example.org",))), "hosts") as access:
        return await inside(access, policy, script)


@pytest.mark.parametrize(
    "addresses",
    [("127.0.0.1",), ("10.0.0.5",), (PUBLIC, "169.254.169.254"), ("::1",), ("::ffff:127.0.0.1",), ()],
)
async def test_a_name_that_leads_to_this_network_is_refused(
    egress: Egress, internet: Internet, policy: SandboxPolicy, addresses: tuple[str, ...]
) -> None:
    internet.names["docs.example.org"] = addresses
    async with await egress.open(Rules(Hosts(("docs.example.org",))), "hosts") as access:
        _, said = await inside(access, policy, "curl -sS http://docs.example.org/")
    assert internet.dialled == []
    assert "not on the public internet" in said or "cannot resolve" in said


async def test_nothing_leads_around_the_proxy(
    egress: Egress, internet: Internet, policy: SandboxPolicy
) -> None:
    direct = f"http://127.0.0.1:{internet.port}/"
    async with await egress.open(Rules(), "hosts") as access:
        code, said = await inside(access, policy, f"curl -sS --noproxy '*' {direct}; ls -A /run /tmp")
    assert "refused" in said or "Failed to connect" in said
    assert internet.seen == []
    assert "codebutler-proxy" in said  # a name without anybody behind it
    assert code == 0


async def test_the_door_takes_one_and_is_gone(egress: Egress, policy: SandboxPolicy) -> None:
    require("python3")
    again = "import socket; socket.socket(socket.AF_UNIX).connect('/run/codebutler-proxy')"
    async with await egress.open(Rules(), "hosts") as access:
        code, said = await inside(access, policy, f'python3 -c "{again}"')
    assert code != 0
    assert "ConnectionRefusedError" in said


async def test_nothing_is_left_when_the_program_has_ended(egress: Egress, policy: SandboxPolicy) -> None:
    access = await egress.open(Rules(), "hosts")
    directory = access._directory
    assert directory is not None
    async with access:
        await inside(access, policy, "true")
    assert not directory.exists()
    assert not access._tasks


async def test_a_program_that_never_starts_leaves_nothing_either(egress: Egress) -> None:
    async with await egress.open(Rules(), "hosts") as access:
        directory = access._directory
    assert directory is not None
    assert not directory.exists()


@pytest.mark.parametrize("interpreter", ["perl", "python"])
async def test_what_was_started_is_the_program_itself(
    egress: Egress, policy: SandboxPolicy, interpreter: str
) -> None:
    """No helper beside it, none of the interpreter's habits, none of its words."""
    sandbox = walled()
    sandbox._system = replace(sandbox._system, perl=require("perl") if interpreter == "perl" else None)
    script = (
        "cat /proc/[0-9]*/comm; ls /proc/self/fd | wc -l; grep SigIgn /proc/self/status; curl -sS $URL; env"
    )
    env = {**policy.env, "LC_ALL": "tlh_QO.UTF-8", "URL": "http://docs.example.org/"}
    async with await egress.open(Rules(Hosts(("docs.example.org",))), "hosts") as access:
        code, said = await inside(access, replace(policy, env=env), script, sandbox)
    assert code == 0
    names, _, rest = said.partition("SigIgn:\t")
    assert names == "bwrap\nsh\n4\n"
    ignored, _, rest = rest.partition("\n")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # those that an interpreter ignores
        assert not int(ignored, 16) & 1 << number - 1
    assert rest.startswith("GET / 0 bytes")
    assert "PERL_BADLANG" not in said


SECOND_VISITOR = """
import socket
way = socket.socket(socket.AF_UNIX)
way.settimeout(30)
try:
    way.connect("/run/codebutler-proxy")
    socket.send_fds(way, [b"."], [socket.create_server(("127.0.0.1", 9999)).fileno()])
    print("answered" if way.recv(1) else "hung up")
except OSError:
    print("hung up")
"""


async def test_the_door_takes_nobody_but_the_first(egress: Egress, policy: SandboxPolicy) -> None:
    """The program does not wait until its way is taken: it may find the door still there."""
    require("python3")
    async with await egress.open(Rules(), "hosts") as access:
        code, said = await inside(access, policy, f"python3 -c {shlex.quote(SECOND_VISITOR)}")
    assert (code, said) == (0, "hung up\n")


@pytest.mark.parametrize("interpreter", ["perl", "python"])
async def test_what_goes_wrong_inside_is_told(
    egress: Egress, policy: SandboxPolicy, interpreter: str
) -> None:
    sandbox = walled()
    sandbox._system = replace(sandbox._system, perl=require("perl") if interpreter == "perl" else None)
    access = await egress.open(Rules(), "hosts")
    async with access:
        launch = sandbox.wrap(("no-such-program", "a b"), replace(policy, network=access.network))
        code, said = await ended(launch)
    assert code == 127
    assert "no-such-program: not found" in said
    with tempfile.TemporaryDirectory(dir="/tmp") as directory, socket.socket(socket.AF_UNIX) as deaf:
        door = ProxySocket(Path(directory) / "door", 3128)
        deaf.bind(str(door.path))
        give_away(Path(directory))
        launch = sandbox.wrap(("true",), replace(policy, network=door))
        assert await ended(launch) == (1, "codebutler: there is no way out of the sandbox\n")


async def test_its_exit_code_and_a_missing_program_are_told(egress: Egress, policy: SandboxPolicy) -> None:
    async with await egress.open(Rules(), "hosts") as access:
        assert await inside(access, policy, "exit 42") == (42, "")


async def test_a_flood_of_connections_takes_no_more_than_its_share(
    egress: Egress, internet: Internet
) -> None:
    async with await egress.open(Rules(service=service(internet)), "open") as access:
        ends = [await asyncio.open_connection("127.0.0.1", access.port) for _ in range(HELD_AT_MOST + 40)]
        refused = [asyncio.create_task(reader.read()) for reader, _ in ends]
        async with asyncio.timeout(30):
            while sum(task.done() for task in refused) < 40:
                await asyncio.wait(
                    [task for task in refused if not task.done()], return_when="FIRST_COMPLETED"
                )
        assert len(access._writers) == HELD_AT_MOST
        for task in refused:
            task.cancel()
        await asyncio.gather(*refused, return_exceptions=True)
        for _, writer in ends:
            writer.transport.abort()


async def test_a_long_body_and_a_chunked_one_arrive_whole(
    egress: Egress, internet: Internet, policy: SandboxPolicy
) -> None:
    served = service(internet)
    script = (
        "head -c 3000000 /dev/zero > big; "
        "curl -sS {url} -H 'x-api-key: {token}' --data-binary @big; "
        "cat big | curl -sS {url} -H 'x-api-key: {token}' -H 'Transfer-Encoding: chunked' -T -"
    )
    async with await egress.open(Rules(service=served), "hosts") as access:
        url = f"{served.inside(access.port)}/v1/x"
        said = await inside(access, policy, script.format(url=url, token=TOKEN))
    assert said == (0, "POST /gateway/v1/x 3000000 bytesPUT /gateway/v1/x 3000000 bytes")


async def test_a_name_is_looked_up_once(egress: Egress, internet: Internet, policy: SandboxPolicy) -> None:
    """A second answer could be another one (DNS rebinding)."""
    asked = []

    async def resolve(host: str, port: int) -> tuple[str, ...]:
        asked.append(host)
        return (PUBLIC,) if len(asked) == 1 else ("127.0.0.1",)

    rebound = Egress(Dialer({}, resolve, internet.connect))
    async with await rebound.open(Rules(Hosts(("docs.example.org",))), "hosts") as access:
        assert (await inside(access, policy, "curl -sS http://docs.example.org/"))[0] == 0
    assert asked == ["docs.example.org"]
    assert internet.dialled == [(PUBLIC, 80)]


async def test_a_proxy_before_the_internet_is_used(internet: Internet, policy: SandboxPolicy) -> None:
    heads: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    chained = Egress(Dialer({"HTTPS_PROXY": f"http://ann:pass%40word@127.0.0.1:{port}"}))
    async with server, await chained.open(Rules(Hosts(("docs.example.org",))), "hosts") as access:
        assert await inside(access, policy, "curl -sS http://docs.example.org/") == (0, "fine")
    assert b"CONNECT docs.example.org:80 HTTP/1.1" in heads[0]
    assert b"Proxy-Authorization: Basic YW5uOnBhc3NAd29yZA==\r\n" in heads[0]


async def test_for_somebody_elses_repository_too(egress: Egress) -> None:
    """Where we are root, the walls' wrapper acts as the repository's owner."""
    uid = 1234 if os.geteuid() == 0 else os.geteuid()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        # Every user may go there, unlike pytest's own directories.
        base = Path(directory).resolve()
        base.chmod(0o755)
        for place in (repo := base / "repo", home := base / "home"):
            place.mkdir()
            os.chown(place, uid, -1)
        policy = SandboxPolicy(workdir=repo, home=home, env={"PATH": "/usr/bin:/bin"})
        async with await egress.open(Rules(Hosts(("docs.example.org",))), "hosts", uid=uid) as access:
            code, said = await inside(access, policy, "id -u; curl -sS http://docs.example.org/")
    assert (code, said) == (0, f"{uid}\nGET / 0 bytes")


async def test_on_this_machines_own_loopback_it_is_nobodys_proxy(
    internet: Internet, policy: SandboxPolicy, egress: Egress
) -> None:
    network_policy = NetworkPolicy("open", ("docs.example.org",), sandboxed=True, dialer=egress.dialer)
    async with await network_policy.open(policy.workdir, service(internet)) as access:
        through = f"curl -sS -x http://127.0.0.1:{access.port} http://docs.example.org/"
        _, said = await inside(access, policy, through)
    assert "does not let this agent reach docs.example.org" in said
    assert internet.dialled == []
