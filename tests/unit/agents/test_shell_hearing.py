"""Envelopes in a terminal's bytes: found through colours, in pieces of any size, and not in the echo."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.agents.shell.output import EnvelopeReader, Stripper

SENT = (
    b"\x1b[2K\x1b[32mreading\x1b[0m\r\n<<<SLACK:progress>>>\r\n\x1b[1mfound\x1b[0m 3\r\n<<<END_SLACK>>>\r\n"
    b"\x1b]0;title\x07noise<<<slack>>>plain<<<end_slack>>>"
)
HEARD = ["<<<SLACK:progress>>>found 3<<<END_SLACK>>>", "<<<SLACK>>>plain<<<END_SLACK>>>"]


def test_envelopes_are_heard_and_nothing_else() -> None:
    envelopes = EnvelopeReader(30)
    envelopes.feed(SENT, 0)
    assert envelopes.heard(0, over=True) == HEARD
    assert envelopes.heard(0, over=True) == []


@given(st.lists(st.integers(0, len(SENT)), max_size=20))
def test_it_does_not_matter_where_the_bytes_are_cut(cuts: list[int]) -> None:
    envelopes = EnvelopeReader(30)
    for start, end in pairwise([0, *sorted(cuts), len(SENT)]):
        envelopes.feed(SENT[start:end], 0)
    assert envelopes.heard(0, over=True) == HEARD


def test_the_echo_of_what_was_typed_is_not_heard() -> None:
    envelopes = EnvelopeReader(30)
    envelopes.ignore_until_s = 1.5
    envelopes.feed(b"<<<SLACK>>>an example<<<END_SLACK>>>", 1.0)
    envelopes.feed(b"<<<SLACK>>>meant<<<END_SLACK>>>", 2.0)
    assert envelopes.heard(2.0, over=False) == ["<<<SLACK>>>meant<<<END_SLACK>>>"]


def test_what_stays_open_is_told_as_incomplete() -> None:
    envelopes = EnvelopeReader(30)
    envelopes.feed(b"<<<SLACK:question>>>go on?", 0)
    assert envelopes.heard(29, over=False) == []
    assert envelopes.heard(31, over=False) == ["<<<SLACK:question>>>⚠️ (incomplete) go on?<<<END_SLACK>>>"]
    envelopes.feed(b"<<<SLACK>>>last words", 40)
    assert envelopes.heard(41, over=True) == ["<<<SLACK>>>⚠️ (incomplete) last words<<<END_SLACK>>>"]


@given(st.binary(max_size=300), st.integers(1, 20))
def test_stripping_in_pieces_is_stripping_at_once(data: bytes, size: int) -> None:
    whole, pieces = Stripper(), Stripper()
    # A carriage return may be the end of a line only when the next piece is known; both are line ends.
    at_once = whole.feed(data.replace(b"\r", b""))
    in_pieces = "".join(
        pieces.feed(data.replace(b"\r", b"")[at : at + size]) for at in range(0, len(data), size)
    )
    assert in_pieces == at_once
