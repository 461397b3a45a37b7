"""A long record a piece at a time: nothing of a secret comes through, wherever it is cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from codebutler.text.redact import Redactor
from codebutler_worker.present import pieces
from codebutler_worker.present.pieces import Pieces, hidden

SECRET = "correct horse battery staple 4711"
TOKEN = "ghp_" + "Ab1" * 12
KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQ\n" * 8 + "-----END PRIVATE KEY-----"
WRAPPED = "Y29ycmVjdCBob3JzZSBiYXR0\nZXJ5IHN0YXBsZSA0NzEx\n"
COLOURED = f"\x1b[01;31m{TOKEN[:9]}\x1b[m\x1b[K{TOKEN[9:]}"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything some hundred times smaller."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2000)
    monkeypatch.setattr(pieces, "REACH_BYTES", 600)
    monkeypatch.setattr(pieces, "SEARCHED_BYTES", 500)


def of(content: bytes, secrets: tuple[str, ...] = (SECRET,)) -> Pieces:
    return Pieces(lambda start, end: content[start:end], len(content), Redactor(secrets))


def shown(content: bytes) -> bytes:
    """All of it, in parts of some thousand bytes as a log is sent."""
    record, parts, start = of(content), [], 0
    for near in (*range(5000, len(content), 5000), len(content)):
        end = record.cut(near)
        parts += list(record.redacted(start, end))
        start = end
    return b"".join(parts)


def lines(number: int) -> bytes:
    return b"".join(b"line %d of an ordinary log\n" % at for at in range(number))


@pytest.mark.parametrize("secret", [SECRET, TOKEN, KEY, WRAPPED, COLOURED])
@pytest.mark.parametrize("edge", [2000, 5000])
@pytest.mark.parametrize("around", [("before ", " after\n"), ("\n", "\n"), ("\nx=", ""), ("\xfc", "\xe4")])
def test_a_secret_that_lies_across_a_cut_is_found(secret: str, edge: int, around: tuple[str, str]) -> None:
    said = "".join((around[0], secret, around[1])).encode()
    clean = lines(260)
    for shift in range(0, len(said) + 1, 1 + len(said) // 25):
        content = clean[: edge - shift] + said + clean[edge - shift :]
        whole = hidden(content, Redactor([SECRET]))
        assert b"[redacted]" in whole
        assert shown(content) == whole


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
def test_in_one_line_without_an_end_it_is_found_too(secret: str) -> None:
    clean = b"some of a progress bar " * 400
    for shift in range(0, len(secret), 2):
        content = clean[: 5000 - shift] + b" " + secret.encode() + b" " + clean[5000 - shift :]
        assert shown(content) == hidden(content, Redactor([SECRET]))


@pytest.mark.parametrize(
    "content",
    [
        lines(1000),
        b"",
        b"\n" * 12_000,
        bytes(range(256)) * 60,
        b"\x1b[32m 10%\r 20%\r" * 900,
        "Grüße, 世界, 🦉; no line ends here. ".encode() * 400,
    ],
)
def test_what_holds_no_secret_comes_byte_for_byte(content: bytes) -> None:
    assert shown(content) == content


def test_a_cut_is_after_a_line_and_never_in_a_character() -> None:
    content = lines(1000)
    assert content[of(content).cut(7777) - 1 : of(content).cut(7777)] == b"\n"
    owls = "🦉".encode() * 4000
    for near in range(7000, 7008):
        place = of(owls).cut(near)
        assert near - 4 < place <= near
        owls[:place].decode()


@pytest.mark.parametrize("near", [0, -5, 10**9])
def test_its_ends_are_its_ends(near: int) -> None:
    content = lines(100)
    assert of(content).cut(near) == (0 if near <= 0 else len(content))


def test_full_of_secrets_it_is_cut_all_the_same() -> None:
    content = (SECRET.encode() + b"\n") * 900
    assert SECRET.encode() not in shown(content)
    assert of(content).cut(5000) > 4500


def test_what_is_read_at_once_is_bounded() -> None:
    content, most = lines(20_000), []

    def read(start: int, end: int) -> bytes:
        most.append(end - start)
        return content[start:end]

    reading: Callable[[int, int], bytes] = read
    assert b"".join(Pieces(reading, len(content), Redactor()).redacted(0, len(content))) == content
    assert max(most) <= pieces.PIECE_BYTES + pieces.SEARCHED_BYTES
