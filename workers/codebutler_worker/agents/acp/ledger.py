"""Kimi Code's own record of a session, ``wire.jsonl``: what a turn used, and that it failed. Blocking.

The agent may write there, so the file is opened step by step, and nothing in it is believed to be more than a remark.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
from msgspec import Struct

from codebutler_worker.agents.acp.kind import Account
from codebutler_worker.agents.acp.verdict import judge_error
from codebutler_worker.sandbox.destinations import open_beneath

LIMIT_BYTES = 32 * 2**20


class Used(Struct, rename="camel"):
    """Tokens of one model call."""

    input_other: int = 0
    output: int = 0
    input_cache_read: int = 0
    input_cache_creation: int = 0


class Failure(Struct):
    """Why a turn failed, in Kimi Code's own words; ``code`` is one of its names for errors."""

    code: str = ""
    message: str = ""


class Line(Struct):
    """A line, as far as it matters here."""

    type: str = ""
    usage: Used | None = None
    reason: str = ""
    error: Failure | None = None


_MARKS = (b'"usage.record"', b'"turn.ended"')
_DECODER = msgspec.json.Decoder(Line)


def length(root: Path, relative: str) -> int:
    """How long the record is, 0 if there is none."""
    try:
        descriptor = open_beneath(root, relative, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return 0
    try:
        found = os.fstat(descriptor)
        return found.st_size if stat.S_ISREG(found.st_mode) else 0
    finally:
        os.close(descriptor)


def account(root: Path, relative: str, since_bytes: int, title: str, login: str) -> Account | None:
    """What is recorded after ``since_bytes``; None if nothing can be read."""
    data = _read(root, relative, since_bytes)
    return None if data is None else account_of(data, title, login)


def account_of(data: bytes, title: str, login: str) -> Account:
    """Pure: the record of a turn, line by line; what is not understood is passed over."""
    into = out = calls = ended = cached = 0
    failed: Failure | None = None
    for line in data.split(b"\n"):
        # Most lines hold whole prompts and are not of interest.
        if not any(mark in line for mark in _MARKS):
            continue
        said = _decoded(line)
        if said is None:
            continue
        if said.type == "usage.record" and said.usage is not None:
            used = said.usage
            into += used.input_other + used.input_cache_read + used.input_cache_creation
            cached += used.input_cache_read
            out += used.output
            calls += 1
        elif said.type == "turn.ended":
            ended += 1
            failed = (said.error or Failure()) if said.reason == "failed" else None
    verdict = judge_error(0, f"{failed.message} ({failed.code})", title, login) if failed else None
    return Account(into, out, calls, verdict, ended, cached)


def _decoded(line: bytes) -> Line | None:
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None


def _read(root: Path, relative: str, since_bytes: int) -> bytes | None:
    try:
        descriptor = open_beneath(root, relative, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        begin = max(since_bytes, found.st_size - LIMIT_BYTES)
        return os.pread(descriptor, LIMIT_BYTES, begin) if begin <= found.st_size else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)
