"""Values that are shown with something in between."""

from __future__ import annotations

import base64
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.text.redact import REDACTED, Redactor

VALUE = "kQ7vW2mZ9pL4tR8sX1yB6nD3"
OTHER = "pass with 'quotes' and \\slashes"
REDACTOR = Redactor([VALUE, OTHER])


@pytest.mark.parametrize(
    "shown",
    [
        "\n".join(textwrap.wrap(VALUE, 10)),
        "\r\n    ".join(textwrap.wrap(VALUE, 5)),
        " ".join(VALUE),
        VALUE[:9] + "**" + VALUE[9:],
        VALUE[:9] + '""' + VALUE[9:],
        VALUE[:9] + "\\\n" + VALUE[9:],
        "\u200b".join(VALUE),
        VALUE[:4] + "\u00ad\u2060\ufeff" + VALUE[4:],
        " ".join(f"{byte:02x}" for byte in VALUE.encode()),
        "\n".join(textwrap.wrap(VALUE.encode().hex(), 30)),
        "pass with quotes and slashes",
    ],
)
def test_it_is_found_and_goes_whole(shown: str) -> None:
    assert REDACTOR.redact(f"a = {shown} b\n") == f"a = {REDACTED} b\n"
    long = "x = 1\n" * 10_000
    assert REDACTOR.redact(f"{long}{shown}\n{long}") == f"{long}{REDACTED}\n{long}"


@pytest.mark.parametrize("before", range(90))
def test_nothing_of_it_is_left_in_base64_as_programs_wrap_it(before: int) -> None:
    told = REDACTOR.redact(base64.encodebytes(b"x" * before + VALUE.encode() + b"y" * 100).decode())
    left = told.replace("\n", "")
    assert REDACTED in left
    for part in left.split(REDACTED):
        shown = base64.b64decode(part[: len(part) // 4 * 4]) + base64.b64decode(part[len(part) % 4 :])
        assert VALUE[:8].encode() not in shown
        assert VALUE[-8:].encode() not in shown


@given(st.text(max_size=400))
def test_everything_else_stays(text: str) -> None:
    assert REDACTOR.redact(text) == text


def test_two_are_both_found_and_what_is_between_stays() -> None:
    shown = f"{VALUE[:9]}\n{VALUE[9:]} and {VALUE[:3]} {VALUE[3:]}."
    assert REDACTOR.redact(shown) == f"{REDACTED} and {REDACTED}."
    assert REDACTOR.redact(REDACTOR.redact(shown)) == REDACTOR.redact(shown)


def test_a_short_value_is_not_looked_for_across_gaps() -> None:
    assert Redactor(["abcdefgh"]).redact("abcd efgh") == "abcd efgh"
