"""What an agent encloses, as posts: its sign, once."""

from __future__ import annotations

import pytest

from codebutler.text.envelopes import Envelope
from codebutler_worker.present.progress import posts
from tests.shown import text_of


@pytest.mark.parametrize(
    ("envelope", "text"),
    [
        (Envelope("", "all"), "all"),
        (Envelope("done", "all"), "✅ all"),
        (Envelope("done", "✅ all"), "✅ all"),
        (Envelope("nonesuch", "all"), "all"),
        (Envelope("question", "go", complete=False), "🤔 ⚠️ (incomplete) go"),
        (Envelope("", "go", complete=False), "⚠️ (incomplete) go"),
        (Envelope("warning", "go", complete=False), "⚠️ (incomplete) go"),
        (Envelope("warning", "⚠️ (incomplete) go"), "⚠️ (incomplete) go"),
    ],
)
def test_its_sign_stands_before_it_once(envelope: Envelope, text: str) -> None:
    (post,) = posts(envelope, "1.0", 3500, str)
    assert text_of(post) == text


def test_an_empty_one_is_nothing() -> None:
    assert posts(Envelope("done", ""), "1.0", 3500, str) == ()
