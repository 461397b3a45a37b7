"""WebVTT captions to the text that was spoken. Pure. Source: W3C WebVTT; Slack's begin with a BOM."""

from __future__ import annotations

import re

_TAG = re.compile(r"<[^<>]*>")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&nbsp;": " ", "&amp;": "&"}


def spoken(captions: str) -> str:
    """The cues' texts in order, as one line; "" if these are no captions."""
    blocks = re.split(r"\n[ \t]*\n", captions.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    if not blocks[0].startswith("WEBVTT"):
        return ""
    return " ".join(" ".join(_cue(block)).strip() for block in blocks[1:] if "-->" in block).strip()


def _cue(block: str) -> list[str]:
    lines = block.split("\n")
    timing = next(number for number, line in enumerate(lines) if "-->" in line)
    return [_plain(line) for line in lines[timing + 1 :] if line.strip()]


def _plain(line: str) -> str:
    line = _TAG.sub("", line)
    for entity, character in _ENTITIES.items():
        line = line.replace(entity, character)
    return line.strip()
