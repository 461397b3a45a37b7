"""Tool calls in one short line for people. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SUMMARY_CHARS = 120
RESULT_CHARS = 2000

# What tells a call from another of the same tool, most telling first.
TELLING = (
    "file_path",
    "notebook_path",
    "path",
    "command",
    "pattern",
    "query",
    "url",
    "skill",
    "description",
    "prompt",
    "plan",
)


def arguments(value: Any) -> dict[str, Any]:
    """A tool's input as a mapping, whatever the model made of it."""
    return value if isinstance(value, dict) else {}


def summarise(given: dict[str, Any], workdir: Path) -> str:
    """The file, command or pattern of a call; paths below ``workdir`` are shortened."""
    for key in TELLING:
        value = given.get(key)
        if isinstance(value, str) and value.strip():
            lines = value.strip().splitlines()
            text = lines[0].removeprefix(f"{workdir}/") + (" …" if len(lines) > 1 else "")
            return text if len(text) <= SUMMARY_CHARS else text[: SUMMARY_CHARS - 1] + "…"
    return ""


def result_text(content: Any) -> str:
    """What a tool answered, shortened; content is a string or a list of blocks (Anthropic Messages API)."""
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        content = "\n".join(part for part in parts if isinstance(part, str))
    text = content if isinstance(content, str) else ""
    return text if len(text) <= RESULT_CHARS else text[: RESULT_CHARS - 1] + "…"
