"""The words of an answer, apart from the reasoning that some services leave among them. Pure.

Sources: Mistral's reasoning models have a list of ``thinking`` and ``text`` chunks for ``content``, streamed and whole
(docs.mistral.ai/capabilities/reasoning, NousResearch/hermes-agent #4748); DeepSeek R1, Qwen 3 and Magistral write
``<think>`` or ``[THINK]`` into the text where the service has no parser for it, and some chat templates have written
the opening one themselves, so that only ``</think>`` comes.
"""

from __future__ import annotations

import re
from typing import Any

_OPENS = re.compile(r"\s*(?:<think(?:ing)?>|\[THINK\])")
_CLOSES = re.compile(r"</think(?:ing)?>|\[/THINK\]")
_CLOSES_ALONE = re.compile(r"^[ \t]*(?:</think(?:ing)?>|\[/THINK\])[ \t]*$", re.MULTILINE)
_MAY_OPEN = ("<thinking>", "[THINK]")


def words_of(content: Any) -> tuple[str, str]:
    """Of a message's ``content``, text or a list of parts: what is said, and what is thought."""
    if isinstance(content, str):
        return content, ""
    said: list[str] = []
    thought: list[str] = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            said.append(part)
        elif isinstance(part, dict) and "thinking" in part:
            thought += words_of(part["thinking"])
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            said.append(part["text"])
    return "".join(said), "".join(thought)


def parted(text: str) -> tuple[str, str]:
    """What is said, and what is thought before it."""
    opened = _OPENS.match(text)
    if opened is not None:
        begin, closed = opened.end(), _CLOSES.search(text, opened.end())
        if closed is None:
            return "", text[begin:].strip()
    else:
        begin, closed = 0, _CLOSES_ALONE.search(text)
        # One in a code block, or in the middle of a sentence, is quoted.
        if closed is None or text[: closed.start()].count("```") % 2:
            return text, ""
    said, more = parted(text[closed.end() :].lstrip())
    return said, "\n\n".join(part for part in (text[begin : closed.start()].strip(), more) if part)


def said_so_far(text: str) -> str:
    """What is said of words that are still coming; "" while it is thought."""
    begun = text.lstrip()
    if begun and any(mark.startswith(begun) for mark in _MAY_OPEN):
        return ""
    return parted(text)[0]
