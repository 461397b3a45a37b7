"""What passes the proxy is counted, whoever asked."""

from __future__ import annotations

import json

import pytest

from codebutler_worker.agents.backend import Usage
from codebutler_worker.agents.process import metered
from codebutler_worker.egress.service import TokenMeter

STREAM = b"".join(
    b"data: " + json.dumps(event).encode() + b"\n\n"
    for event in (
        {"type": "message_start", "message": {"usage": {"input_tokens": 10, "cache_read_input_tokens": 200,
                                                        "cache_creation_input_tokens": 30, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"text": json.dumps({"input_tokens": 999_999})}},
        {"type": "message_delta", "usage": {"output_tokens": 40}},
        {"type": "message_delta", "usage": {"input_tokens": 10, "output_tokens": 77}},
    )
)  # fmt: skip
WHOLE = b'{"id": "x", "usage": {"prompt_tokens" : 12, "completion_tokens":34, "total_tokens": 46}}'


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
@pytest.mark.parametrize(("answer", "tokens"), [(STREAM, (240, 77)), (WHOLE, (12, 34)), (b"", (0, 0))])
def test_an_answer_is_counted_however_it_is_cut(answer: bytes, tokens: tuple[int, int], size: int) -> None:
    gauge = TokenMeter()
    reading = gauge.reading("/v1/messages?beta=true")
    assert reading is not None
    for at in range(0, len(answer), size):
        reading.add(answer[at : at + size])
    assert (gauge.input, gauge.output) == tokens


UNCOUNTED = b"HTTP/1.1 200 OK\r\n\r\n" + b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n' * 30


@pytest.mark.parametrize(
    ("path", "answer", "tokens"),
    [
        ("/v1/chat/completions", UNCOUNTED, (1000, 30)),
        ("/v1/chat/completions", b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 381, (1000, 100)),
        ("/v1/chat/completions", b"HTTP/1.1 200 OK\r\n\r\n" + WHOLE, (12, 34)),
        ("/v1/chat/completions", b"HTTP/1.1 500 Oops\r\n\r\n" + b"x" * 4000, (0, 0)),
        ("/v1/models", UNCOUNTED, (0, 0)),
    ],
)
def test_an_answer_without_figures_is_reckoned(path: str, answer: bytes, tokens: tuple[int, int]) -> None:
    gauge = TokenMeter()
    reading = gauge.reading(path, 4000)
    assert reading is not None
    reading.add(answer)
    reading.end()
    assert (gauge.input, gauge.output) == tokens


def test_every_answer_counts_but_those_that_are_free() -> None:
    gauge = TokenMeter()
    for _ in range(2):
        reading = gauge.reading("/v1/messages")
        assert reading is not None
        reading.add(STREAM)
    assert gauge.total == 2 * 317
    assert gauge.reading("/v1/messages/count_tokens?beta=true") is None


def test_who_tells_of_less_than_half_is_not_believed() -> None:
    gauge = TokenMeter(input=1_500_000, output=500_000)
    assert metered(Usage(900_000, 100_000, 2.0, 7), gauge) == Usage(1_500_000, 500_000, 4.0, 7)
    assert metered(Usage(0, 0, None, 1), gauge) == Usage(1_500_000, 500_000, None, 1)
    # Small errands of the program's own (a title, a summary) are in its price, not in its tokens.
    told = Usage(1_200_000, 400_000, 2.0, 7)
    assert metered(told, gauge) == told
    assert metered(Usage(10, 1, 0.1, 1), TokenMeter(input=5_000, output=4_000)) == Usage(10, 1, 0.1, 1)
