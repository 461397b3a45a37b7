"""CodeButler's version, and the number that records it in files. Pure."""

from __future__ import annotations

VERSION = "0.1.0"
"""As in pyproject.toml; here, because reading it from the installation costs a worker memory."""
_STEP = 1000


def as_number(version: str) -> int:
    """A version's first three numbers as one that sorts: 1.2.3 is 1002003."""
    numbers = [int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:3]]
    total = 0
    for number in [*numbers, 0, 0][:3]:
        total = total * _STEP + min(number, _STEP - 1)
    return total


def as_text(number: int) -> str:
    """The version of a number; "" for 0."""
    return f"{number // _STEP**2}.{number // _STEP % _STEP}.{number % _STEP}" if number > 0 else ""
