"""What is known of one agent without starting a turn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Survey:
    """One agent: ``prefix`` is what people write before the colon; ``ready``, or ``note`` says what to do.

    ``version`` is "" where there is none to tell.
    """

    prefix: str
    ready: bool
    note: str = ""
    version: str = ""
