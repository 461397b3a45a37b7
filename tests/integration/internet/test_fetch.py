"""Pages from real servers on loopback, which stands for the internet, and every way to be led elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from codebutler_worker.internet.addresses import PageRefusedError
from codebutler_worker.internet.fetch import MAX_BYTES, Internet
from tests.programs import require

PUBLIC = "93.184.215.14"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]]


class Net:
    """A small internet: ``names`` and their addresses, of which the public ones lead to one real server. ``dialled``
    are the addresses that were connected to."""

    def __init__(self) -> None:
        self.names: dict[str, list[tuple[str, ...]]] = {"example.com": [(PUBLIC,)]}
        self.looked_up: list[str] = []
        self.dialled: list[str] = []
        self.requests: list[str] = []
        self.port = 0

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        """Each look-up but the last takes an answer away."""
        self.looked_up.append(host)
        answers = self.names.get(host)
        if answers is None:
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def dial(self, address: str, port: int) -> tuple[str, int]:
        self.dialled.append(address)
        return "127.0.0.1", self.port

    def internet(self, verify: ssl.SSLContext | None = None, total_s: float = 30.0) -> Internet:
        return Internet(self.resolve, verify, self.dial, total_s)

    @asynccontextmanager
    async def serving(self, answer: Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[Internet]:
        """The real server: ``answer`` gets each request's head."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.requests.append(head)
                await answer(reader, writer, head)
                await writer.drain()
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self.internet()
        finally:
            server.close()


def sends(head: str, body: bytes = b"", length: int | None = None) -> Answer:
    """Always the same answer."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _head: str) -> None:
        size = len(body) if length is None else length
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {size}\r\n\r\n".encode() + body)

    return answer


def redirects(*locations: str) -> Answer:
    """One redirect after the other, then a page."""
    left = list(locations)

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _head: str) -> None:
        if left:
            writer.write(
                f"HTTP/1.1 302 Found\r\nLocation: {left.pop(0)}\r\nContent-Length: 0\r\n\r\n".encode()
            )
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")

    return answer


async def test_a_page_comes_as_text_and_nothing_of_ours_goes_along() -> None:
    net = Net()
    async with net.serving(sends("200 OK\r\nContent-Type: text/html", b"<h1>Hello</h1>")) as internet:
        page = await internet.fetch("http://example.com/a?b=c#d")
    assert (page.text, page.status, page.kind, page.cut) == ("# Hello", 200, "text/html", False)
    assert page.url == "http://example.com/a?b=c"
    request = net.requests[0].lower()
    assert request.startswith("get /a?b=c http/1.1\r\n")
    assert "\r\nhost: example.com\r\n" in request
    assert "cookie" not in request
    assert "authorization" not in request
    assert net.dialled == [PUBLIC]


async def test_the_certificate_is_that_of_the_name_not_of_the_address(tmp_path: Path) -> None:
    server, client = certificates(tmp_path, "example.com")
    net = Net()
    net.names["other.example.org"] = [(PUBLIC,)]
    async with net.serving(sends("200 OK\r\nContent-Type: text/plain", b"safe"), server):
        assert (await net.internet(client).fetch("https://example.com/")).text == "safe"
        with pytest.raises(PageRefusedError, match="cannot be reached"):
            await net.internet(client).fetch("https://other.example.org/")
        with pytest.raises(PageRefusedError, match="cannot be reached"):
            await net.internet().fetch("https://example.com/")  # a certificate that nobody vouches for


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1",),
        ("169.254.169.254",),
        ("10.0.0.1", PUBLIC),
        (PUBLIC, "192.168.0.1"),
        (PUBLIC, "::1"),
        ("::ffff:127.0.0.1",),
        ("64:ff9b::a9fe:a9fe",),
        ("fd00:ec2::254",),
        ("168.63.129.16",),
        (),
    ],
)
async def test_a_name_with_any_private_address_is_never_connected_to(addresses: tuple[str, ...]) -> None:
    net = Net()
    net.names["example.com"] = [addresses]
    with pytest.raises(PageRefusedError):
        await net.internet().fetch("http://example.com/")
    assert net.dialled == []


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "１２７.0.0.1",
        "169.254.169.254",
    ],
)
async def test_every_spelling_of_this_machine_is_refused_by_what_it_resolves_to(host: str) -> None:
    dialled: list[str] = []

    def dial(address: str, port: int) -> tuple[str, int]:
        dialled.append(address)
        return "127.0.0.1", 9

    with pytest.raises(PageRefusedError):
        await Internet(dial=dial).fetch(f"http://{host}/")
    assert dialled == []


async def test_a_name_that_changes_its_address_is_connected_at_the_checked_one() -> None:
    net = Net()
    net.names["example.com"] = [(PUBLIC,), ("127.0.0.1",)]
    async with net.serving(sends("200 OK\r\nContent-Type: text/plain", b"ok")) as internet:
        assert (await internet.fetch("http://example.com/")).text == "ok"
        assert (net.looked_up, net.dialled) == (["example.com"], [PUBLIC])
        with pytest.raises(PageRefusedError, match="public internet"):
            await internet.fetch("http://example.com/")
    assert net.dialled == [PUBLIC]


async def test_redirects_are_followed_and_each_is_checked() -> None:
    net = Net()
    net.names["www.example.com"] = [("1.1.1.1",)]
    async with net.serving(redirects("http://www.example.com/x", "/y")) as internet:
        page = await internet.fetch("http://example.com/")
    assert (page.text, page.url) == ("ok", "http://www.example.com/y")
    assert net.dialled == [PUBLIC, "1.1.1.1", "1.1.1.1"]


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://metadata.google.internal/",
        "http://rebound.example.com/",
        "http://localhost:6379/",
        "http://example.com:22/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "http://user:word@example.com/",
        "http://[::ffff:169.254.169.254]/",
        "//127.0.0.1/",
        "http://example.com\\@127.0.0.1/",
    ],
)
async def test_a_redirect_leads_nowhere_that_an_address_may_not(location: str) -> None:
    net = Net()
    net.names |= {"rebound.example.com": [("10.0.0.1",)], "127.0.0.1": [("127.0.0.1",)]}
    net.names |= {name: [(name,)] for name in ("169.254.169.254", "::ffff:169.254.169.254")}
    async with net.serving(redirects(location)) as internet:
        with pytest.raises(PageRefusedError):
            await internet.fetch("http://example.com/")
    assert net.dialled == [PUBLIC]


async def test_redirects_end() -> None:
    net = Net()
    async with net.serving(redirects(*["/again"] * 20)) as internet:
        with pytest.raises(PageRefusedError, match="redirects more than 3 times"):
            await internet.fetch("http://example.com/")
    assert len(net.requests) == 4


async def test_a_bomb_is_unpacked_as_far_as_it_may_be() -> None:
    bomb = gzip.compress(b"\0" * 200 * 2**20, 9)
    net = Net()
    head = "200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip"
    async with net.serving(sends(head, bomb)) as internet:
        page = await internet.fetch("http://example.com/")
    assert page.cut


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip"])
async def test_what_was_not_asked_for_is_not_unpacked(encoding: str) -> None:
    net = Net()
    head = f"200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: {encoding}"
    async with net.serving(sends(head, zlib.compress(b"x"))) as internet:
        with pytest.raises(PageRefusedError, match=r"compressed as|cannot be decompressed"):
            await internet.fetch("http://example.com/")


async def test_a_packed_page_is_read() -> None:
    net = Net()
    head = "200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip"
    async with net.serving(sends(head, gzip.compress(b"hello " * 100))) as internet:
        assert (await internet.fetch("http://example.com/")).text == ("hello " * 100).strip()


async def test_a_flood_is_cut() -> None:
    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _head: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 2**16)
            await writer.drain()

    net = Net()
    async with net.serving(flood) as internet:
        page = await internet.fetch("http://example.com/")
    assert page.cut
    assert len(page.text) <= MAX_BYTES


@pytest.mark.parametrize("when", ["before the head", "within the body"])
async def test_a_server_that_dawdles_is_left(when: str) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _head: str) -> None:
        if when == "within the body":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9000\r\n\r\nx")
        await reader.read()  # until the other side has gone

    net = Net()
    async with net.serving(drip):
        with pytest.raises(PageRefusedError, match=r"did not (send the page|answer)"):
            await net.internet(total_s=0.5).fetch("http://example.com/")


@pytest.mark.parametrize(
    "answer",
    [
        sends("200 OK\r\nContent-Type: text/plain", b"short", length=500),
        sends("200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip", b"\x1f\x8bnonsense"),
        sends("200 OK\r\n" + "X: y\r\n" * 50_000 + "Content-Type: text/plain", b""),
        sends("200 OK\r\nContent-Type: image/png", b"\x89PNG"),
        sends("nonsense"),
    ],
    ids=["too short", "damaged", "endless head", "picture", "no HTTP"],
)
async def test_what_is_broken_is_one_line(answer: Answer) -> None:
    net = Net()
    async with net.serving(answer) as internet:
        with pytest.raises(PageRefusedError) as refused:
            await internet.fetch("http://example.com/")
    assert "\n" not in str(refused.value)


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    net = Net()
    async with net.serving(sends("200 OK\r\nContent-Type: text/plain", b"direct")) as internet:
        assert (await internet.fetch("http://example.com/")).text == "direct"


def certificates(directory: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side with a certificate for ``name``, and a client's that trusts it."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        [
            *(
                str(require("openssl")),
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=certificate)


async def test_the_end_of_something_long_comes_as_it_is() -> None:
    net = Net()
    log = sends("200 OK\r\nContent-Type: application/octet-stream", b"a" * 200_000 + b"end")
    async with net.serving(log) as internet:
        assert await internet.end_of("http://example.com/log", 5, 2**20) == b"aaend"
        with pytest.raises(PageRefusedError, match="too long"):
            await internet.end_of("http://example.com/log", 5, 1000)
    assert "accept-encoding: identity" in net.requests[0].lower()
    async with net.serving(redirects("http://127.0.0.1/x")) as internet:
        with pytest.raises(PageRefusedError):
            await internet.end_of("http://example.com/log", 5, 1000)
