"""What is made of a hostile service's answers."""

from __future__ import annotations

import pytest
from msgspec import Struct

from codebutler_worker.forge.api import decode_answer
from codebutler_worker.forge.remote import ForgeError


class Told(Struct):
    number: int


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b"\xff", b'{"a":' + b"[" * 5000, b'{"a":' * 5000])
def test_an_answer_that_makes_no_sense_is_told(answer: bytes) -> None:
    with pytest.raises(ForgeError, match=r"forge\.apiUrl"):
        decode_answer(answer, Told)
