"""Keys that are added outside."""

from __future__ import annotations

import pytest

from codebutler_worker.egress.hosts import HostPort
from codebutler_worker.egress.http import RequestHead
from codebutler_worker.egress.service import ModelService, WrongKeyError, parse_headers

API = ModelService(
    base_url="https://api.example/base/",
    token="codebutler-1",
    keys=(("x-api-key", "sk-real"), ("authorization", "Bearer real")),
    extra=(("X-Team", "blue"),),
)


def asked(*headers: tuple[str, str]) -> RequestHead:
    return RequestHead("POST", "/base/v1/messages", (("Host", "127.0.0.1:3128"), *headers))


def test_where_it_is_and_where_it_seems_to_be() -> None:
    assert (API.place, API.secure, API.path) == (HostPort("api.example", 443), True, "/base")
    assert API.inside(3128) == "http://127.0.0.1:3128/base"
    local = ModelService(base_url="http://127.0.0.1:8080")
    assert (local.place, local.secure, local.inside(1)) == (
        HostPort("127.0.0.1", 8080),
        False,
        "http://127.0.0.1:1",
    )


@pytest.mark.parametrize(
    ("target", "there"),
    [
        ("/base/v1/messages?beta=true", True),
        ("/base/", True),
        ("/base/v1/..?x", False),
        ("/base", False),
        ("/admin", False),
        ("/basement/x", False),
        ("/base/../admin", False),
        ("/base/%2e%2e/admin", False),
        ("/base/%252e%252e/admin", False),
        ("/base/..%2fadmin", False),
        ("/base/..\\admin", False),
        ("/base/./x", False),
        ("/base/..;/admin", False),
        ("/base/..;a=b/admin", False),
        ("/base/%2e%2e%3b/admin", False),
        ("/base/v1...x", True),
    ],
)
def test_only_what_lies_within_it_is_there(target: str, there: bool) -> None:
    assert API.has(target) is there


@pytest.mark.parametrize(
    ("sent", "real"),
    [
        (("X-Api-Key", "codebutler-1"), ("x-api-key", "sk-real")),
        (("X_Api_Key", "codebutler-1"), ("x-api-key", "sk-real")),
        (("authorization", "Bearer codebutler-1"), ("authorization", "Bearer real")),
    ],
)
def test_the_token_becomes_the_key(sent: tuple[str, str], real: tuple[str, str]) -> None:
    onward = API.onward(asked(sent))
    assert onward.headers == (("Host", "api.example"), real, ("Connection", "close"), ("X-Team", "blue"))


def test_without_a_key_none_is_added() -> None:
    assert not {"x-api-key", "authorization"} & {name.lower() for name, _ in API.onward(asked()).headers}


@pytest.mark.parametrize(
    "headers",
    [
        (("x-api-key", "sk-other"),),
        (("x-api-key", ""),),
        (("x-api-key", "codebutler-1"), ("Authorization", "Bearer sk-other")),
        (("x-api-key", "codebutler-1"), ("X-API-KEY", "sk-other")),
        (("api-key", "codebutler-1"),),
        (("x-api-key", "codebutler-1"), ("X_Api_Key", "sk-other")),
        (("x-api-key", "codebutler-1"), ("AUTHORIZATION", "bearer sk-other")),
        (("x-goog-api-key", "sk-other"),),
        (("x-auth-token", "sk-other"),),
        (("authorization", "Basic Y29kZWJ1dGxlci0x"),),
        (("x-api-key", "kéy"),),
    ],
)
def test_any_other_key_is_refused(headers: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(WrongKeyError):
        API.onward(asked(*headers))


def test_a_login_of_the_agents_own_goes_through() -> None:
    service = ModelService(base_url="https://gateway.example", extra=(("X-Team", "blue"),))
    sent = (("Authorization", "Bearer oauth"), ("x-team", "red"))
    headers = dict(service.onward(asked(*sent)).headers)
    assert headers["Authorization"] == "Bearer oauth"
    assert headers["X-Team"] == "blue"
    assert "x-team" not in headers


def test_headers_as_a_variable_holds_them() -> None:
    assert parse_headers("A: 1\n b : x: y\n\nnone") == (("A", "1"), ("b", "x: y"))


def test_no_secret_shows_when_it_is_printed() -> None:
    assert "sk-real" not in repr(API)
    assert "codebutler-1" not in repr(API)


SECRET = ModelService(
    base_url="https://api.example/base",
    token="codebutler-1",
    keys=(("x-api-key", "sk-real-key-1"), ("authorization", "Bearer real-token-2")),
    extra=(("X-Team", "blue"), ("X-Login", "a-long-secret-one")),
)


def test_a_session_of_somebody_elses_and_what_hides_an_answer_stay_here() -> None:
    sent = (("Cookie", "s=1"), ("Accept-Encoding", "br"), ("x-api-key", "codebutler-1"))
    kept = {name.lower() for name, _ in SECRET.onward(asked(*sent)).headers}
    assert kept == {"host", "connection", "x-api-key", "x-team", "x-login"}


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_service_that_repeats_what_it_was_asked_does_not_tell_the_key(size: int) -> None:
    mask = SECRET.mask
    assert mask is not None
    said = b'{"headers": {"x-api-key": "sk-real-key-1", "authorization": "Bearer real-token-2"}, "end": "sk-real-ke'
    told = b"".join(mask(said[at : at + size]) for at in range(0, len(said), size)) + mask(b"")
    assert told == said.replace(b"sk-real-key-1", b"x" * 13).replace(
        b'r real-token-2"', b"r " + b"x" * 12 + b'"'
    )


def test_nothing_is_held_back_that_begins_no_key() -> None:
    mask = SECRET.mask
    assert mask is not None
    assert mask(b"data: token\n\n") == b"data: token\n\n"
    assert ModelService(base_url="https://api.example").mask is None
    assert API.mask is None
