"""Kimi Code's own record of a session, ``wire.jsonl``: what a turn used, and that it failed.

The agent may write there, so the file is opened step by step, and nothing in it is believed to be more than a remark.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from codebutler_worker.agents.acp.agent import TurnRecord, judge_error
from codebutler_worker.sandbox.destinations import open_beneath

LIMIT_BYTES = 32 * 2**20
R = TypeVar("R")


class WireUsage(Struct, rename="camel"):
    """Tokens of one model call."""

    input_other: int = 0
    output: int = 0
    input_cache_read: int = 0
    input_cache_creation: int = 0


class WireFailure(Struct):
    """Why a turn failed, in Kimi Code's own words; ``code`` is one of its names for errors."""

    code: str = ""
    message: str = ""


class WireLine(Struct):
    """A line, as far as it matters here."""

    type: str = ""
    usage: WireUsage | None = None
    reason: str = ""
    error: WireFailure | None = None


_MARKS = (b'"usage.record"', b'"turn.ended"')
_DECODER = msgspec.json.Decoder(WireLine)


def length(root: Path, relative: str) -> int:
    """How long the record is, 0 if there is none. Blocking."""
    return _opened(root, relative, lambda _, size: size) or 0


def account(root: Path, relative: str, since_bytes: int, title: str, login: str) -> TurnRecord | None:
    """What is recorded after ``since_bytes``; None if nothing can be read. Blocking."""

    def read(descriptor: int, size: int) -> bytes:
        begin = max(since_bytes, size - LIMIT_BYTES)
        return os.pread(descriptor, LIMIT_BYTES, begin) if begin <= size else b""

    data = _opened(root, relative, read)
    return None if data is None else account_of(data, title, login)


def account_of(data: bytes, title: str, login: str) -> TurnRecord:
    """Pure: the record of a turn, line by line; what is not understood is passed over."""
    into = out = calls = ended = cached = 0
    failed: WireFailure | None = None
    for line in data.split(b"\n"):
        # Most lines hold whole prompts and are not of interest.
        if not any(mark in line for mark in _MARKS):
            continue
        try:
            said = _DECODER.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue
        if said.type == "usage.record" and said.usage is not None:
            used = said.usage
            into += used.input_other + used.input_cache_read + used.input_cache_creation
            cached += used.input_cache_read
            out += used.output
            calls += 1
        elif said.type == "turn.ended":
            ended += 1
            failed = (said.error or WireFailure()) if said.reason == "failed" else None
    verdict = judge_error(0, f"{failed.message} ({failed.code})", title, login) if failed else None
    return TurnRecord(into, out, calls, verdict, ended, cached)


def _opened(root: Path, relative: str, use: Callable[[int, int], R]) -> R | None:
    """What ``use`` makes of the file's descriptor and size; None if there is no such file."""
    try:
        descriptor = open_beneath(root, relative, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        return use(descriptor, found.st_size) if stat.S_ISREG(found.st_mode) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
