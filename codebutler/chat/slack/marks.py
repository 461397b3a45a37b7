"""Our reactions on people's messages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from codebutler.domain.model import Mark

REACTIONS: Mapping[Mark, str] = MappingProxyType(
    {
        "queued": "hourglass_flowing_sand",
        "working": "eyes",
        "waiting": "raised_hand",
        "done": "white_check_mark",
        "failed": "x",
        "stopped": "octagonal_sign",
    }
)
FINAL = frozenset(REACTIONS[mark] for mark in ("done", "failed", "stopped"))
"""On a message whose turn has ended."""
