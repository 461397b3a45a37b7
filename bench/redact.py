"""How fast secrets are redacted from outgoing text: a log of ordinary lines, a few of which contain a secret."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.figures import Figure, limit, median
from bench.scene import BenchError, Pace
from codebutler.text.redact import Redactor

MB = 1_000_000
SIZE_MB = 20
ROUNDS = 3
EVERY_LINES = 5_000
HELD = tuple(f"held-value-{number:02d}-0123456789abcdef" for number in range(20))
AT_MOST_MS = 20.0
"""A megabyte: 50 MB/s."""


async def measure(_place: Path, _pace: Pace) -> list[Figure]:
    """One figure, in a thread as the product does it."""
    text = _log()
    redactor = Redactor(HELD)
    taken_ms = [await asyncio.to_thread(_redact_ms, redactor, text) for _ in range(ROUNDS)]
    return [limit("secrets taken out of a log, per MB", median(taken_ms), AT_MOST_MS)]


def _redact_ms(redactor: Redactor, text: str) -> float:
    began_s = time.perf_counter()
    shown = redactor.redact(text)
    per_mb_ms = (time.perf_counter() - began_s) * 1000 / (len(text) / MB)
    if any(value in shown for value in HELD):
        raise BenchError("a held value came through")
    return per_mb_ms


def _log() -> str:
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    lines: list[str] = []
    size = 0
    while size < SIZE_MB * MB:
        number = len(lines)
        line = f"2026-01-01 10:00:{number % 60:02d} INF  [{number}] {source[number % len(source)]}"
        if number % EVERY_LINES == 0:
            line += f" {HELD[number // EVERY_LINES % len(HELD)]}"
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)
