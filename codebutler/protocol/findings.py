"""What a check of the installation found: written by the supervisor's side and by the worker's."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Level = Literal["ok", "warn", "FAIL"]


class Finding(Struct, frozen=True, kw_only=True):
    """One line of `codebutler doctor`: how ``subject`` of ``area`` is, and, unless it is well, what to do."""

    area: str
    subject: str
    level: Level
    text: str


def ok(area: str, subject: str, text: str) -> Finding:
    """All is well."""
    return Finding(area=area, subject=subject, level="ok", text=text)


def warn(area: str, subject: str, text: str) -> Finding:
    """It works, and somebody should know."""
    return Finding(area=area, subject=subject, level="warn", text=text)


def fail(area: str, subject: str, text: str) -> Finding:
    """It does not work until something is done."""
    return Finding(area=area, subject=subject, level="FAIL", text=text)
