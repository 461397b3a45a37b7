"""HTTP heads, read strictly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.egress.http import MalformedHttpError, RequestHead, closing, parse, refusal


def request(*headers: str, first: str = "POST /v1/x HTTP/1.1") -> bytes:
    return "\r\n".join((first, *headers, "", "")).encode("latin-1")


def test_a_request_is_read_and_written() -> None:
    head = parse(request("Host: a", "X: 1", "x:2"))
    assert head == RequestHead("POST", "/v1/x", (("Host", "a"), ("X", "1"), ("x", "2")))
    assert head.values("x") == ["1", "2"]
    assert parse(head.encode()) == head


def test_what_is_about_this_connection_does_not_go_on() -> None:
    sent = request(
        "Host: a", "Connection: keep-alive", "Proxy-Authorization: x", "Upgrade: h2c", "Accept: */*"
    )
    onward = parse(sent).onward("/y", "b")
    assert onward == RequestHead("POST", "/y", (("Host", "b"), ("Accept", "*/*"), ("Connection", "close")))


@pytest.mark.parametrize(
    "data",
    [
        request(first="POST /v1/x"),
        request(first="POST  /v1/x HTTP/1.1"),
        request(first="POST /v1/x HTTP/2.0"),
        request(first="PO ST /v1/x HTTP/1.1"),
        request(first="POST /v1/\x01x HTTP/1.1"),
        request(first="POST /v1/\xe4 HTTP/1.1"),
        request("no colon"),
        request("Space : 1"),
        request(" folded: 1"),
        request("X: 1\nY: 2"),
        request("X: \x00"),
        request(": 1"),
    ],
)
def test_what_is_not_well_formed_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedHttpError):
        parse(data)


@pytest.mark.parametrize(
    ("headers", "length"),
    [((), 0), (("Content-Length: 12",), 12), (("Transfer-Encoding: Chunked",), None)],
)
def test_the_length_of_a_body_is_clear(headers: tuple[str, ...], length: int | None) -> None:
    assert parse(request(*headers)).body == length


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 1", "Content-Length: 2"),
        ("Content-Length: 1", "Content-Length: 1"),
        ("Content-Length: +1",),
        ("Content-Length: 0x1",),
        ("Content-Length: ",),
        ("Content-Length: 1", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: identity",),
    ],
)
def test_a_length_that_two_could_read_differently_is_refused(headers: tuple[str, ...]) -> None:
    head = parse(request(*headers))
    with pytest.raises(MalformedHttpError):
        _ = head.body


def test_an_answer_ends_its_connection() -> None:
    status, head = closing(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n")
    assert (status, head) == (200, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n")
    assert closing(b"HTTP/1.1 100 Continue\r\n\r\n") == (100, b"HTTP/1.1 100 Continue\r\n\r\n")
    with pytest.raises(MalformedHttpError):
        closing(b"SSH-2.0-x\r\n\r\n")


def test_a_refusal_says_why_to_programs_and_people() -> None:
    told = refusal(403, "a.example is not in sandbox.hosts", "Add it.")
    assert told.startswith(b"HTTP/1.1 403 a.example is not in sandbox.hosts\r\n")
    assert told.endswith(b"Content-Length: 8\r\nConnection: close\r\n\r\nAdd it.\n")


@given(st.binary(max_size=300))
def test_anything_is_read_or_refused(data: bytes) -> None:
    try:
        head = parse(data + b"\r\n\r\n")
    except MalformedHttpError:
        return
    assert parse(head.encode()) == head
