"""What an agent is writing just now, as far as there is room for it: the latest of it. Pure."""

from __future__ import annotations

import re

from codebutler.text.begun import CUT

MOST_LINES = 6
MOST_CHARS = 500
_ENVELOPE = re.compile(r"<{3}(?:S(?:L(?:A(?:C(?:K.*)?)?)?)?)?\Z|<{3}SLACK.*", re.IGNORECASE | re.DOTALL)
"""From a marker on, or from what may become one, it is no prose: what it encloses is posted by itself."""


def prose(text: str) -> str:
    """What is sure to be prose of what is being written."""
    return _ENVELOPE.sub("", text.removesuffix(CUT))


def latest(text: str) -> str:
    """The last lines of the prose, one space where there was more room; "" if there is none."""
    lines = [" ".join(line.split()) for line in prose(text).split("\n")]
    kept: list[str] = []
    room = MOST_CHARS
    for line in reversed([line for line in lines if line]):
        if len(kept) == MOST_LINES or room <= 0:
            break
        kept.append(line if len(line) <= room else CUT + line[-room:])
        room -= len(line)
    return "\n".join(reversed(kept)) + (CUT if kept else "")
