"""A model that does what it is told: it takes the prompts of `codebutler doctor --live` at their word, and knows only
what the request in front of it says."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codebutler_worker.trials.turns import COLOURS
from tests.modelserver.completions import CompletionsServer
from tests.modelserver.script import Call, Reply
from tests.modelserver.server import ModelServer

WRITERS = ("Write", "write_file", "WriteFile")
SHELLS = ("Bash", "run_terminal_command", "Shell")
VIEWERS = ("ReadMediaFile", "Read")
SEARCH = "ToolSearch"
OURS = "mcp__codebutler__ask_to_push"
"""What Claude Code calls our tool, and by what it is found."""
_ASKED = re.compile(
    r"Remember the word|Write the word|Which word do|Run exactly this command|attached picture|Call the tool"
)


@dataclass
class Seen:
    """What a request says. ``results``: the texts of tools since the last prompt; ``pictures`` as PNG."""

    prompt: str = ""
    word: str = "nothing"
    results: list[str] = field(default_factory=list)
    pictures: list[bytes] = field(default_factory=list)
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def answer_to(body: Mapping[str, Any]) -> Reply:
    """What the model says to this request."""
    seen = read(body)
    if "Remember the word" in seen.prompt:
        return Reply("READY")
    if "Which word" in seen.prompt:
        return Reply(seen.word)
    if seen.results:
        return _after_tools(seen)
    call = _call(seen)
    return Reply("", (call,)) if call is not None else Reply("I have no tool for that.")


def _after_tools(seen: Seen) -> Reply:
    if "attached picture" in seen.prompt:
        return Reply(colour_of(seen.pictures[-1]) if seen.pictures else "I see no picture.")
    if "that you remember" in seen.prompt:
        return Reply(seen.word)
    if "Call the tool" in seen.prompt and len(seen.results) == 1 and SEARCH in seen.tools:
        return Reply("", (Call(OURS, {"why": "TEST"}),))
    return Reply("READY")


def _call(seen: Seen) -> Call | None:
    asked = seen.prompt
    if command := re.search(r"then answer READY: (.+)", asked):
        return _named(seen, SHELLS, command[1].strip(), "")
    if "into the new file" in asked:
        name = "word.txt" if "word.txt" in asked else "planned.txt"
        return _named(seen, WRITERS, name, seen.word if name == "word.txt" else "PLAN")
    if place := re.search(r"\[attached file: (\S+)", asked):
        return _named(seen, VIEWERS, place[1], "")
    push = next((name for name in seen.tools if name.endswith("ask_to_push")), None)
    if push is None and SEARCH in seen.tools:
        return Call(SEARCH, {"query": f"select:{OURS}", "max_results": 1})
    return Call(push, {"why": "TEST"}) if push else None


def _named(seen: Seen, names: tuple[str, ...], first: str, second: str) -> Call | None:
    """The tool, with its arguments as its schema names them."""
    name = next((each for each in names if each in seen.tools), None)
    if name is None:
        return None
    given: dict[str, Any] = {}
    for key in seen.tools[name].get("properties", {}):
        if key in ("file_path", "path", "command"):
            given[key] = first
        elif key in ("content", "text"):
            given[key] = second
        elif key == "description":
            given[key] = "a command"
    return Call(name, given)


def read(body: Mapping[str, Any]) -> Seen:
    """The request, of either kind of service."""
    seen = Seen(tools=dict(map(_tool, body.get("tools", ()))))
    for message in body["messages"]:
        if message["role"] == "tool":
            _result(message["content"], seen)
        elif message["role"] == "user":
            _said(message["content"], seen)
    return seen


def _tool(tool: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    own = tool.get("function", tool)
    return own["name"], own.get("input_schema") or own.get("parameters") or {}


def _said(content: Any, seen: Seen) -> None:
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if part["type"] == "tool_result":
            _result(part.get("content", ""), seen)
        elif part["type"] == "text" and _ASKED.search(part["text"]):
            seen.prompt, seen.results, seen.pictures = part["text"], [], []
            if word := re.search(r"Remember the word (\w+)", part["text"]):
                seen.word = word[1]
        else:
            _picture(part, seen)


def _result(content: Any, seen: Seen) -> None:
    seen.results.append(json.dumps(content))
    for part in content if isinstance(content, list) else ():
        _picture(part, seen)


def _picture(part: Mapping[str, Any], seen: Seen) -> None:
    data = ""
    if part["type"] == "image":
        data = part["source"]["data"]
    elif part["type"] == "image_url":
        data = part["image_url"]["url"].partition("base64,")[2]
    if data:
        seen.pictures.append(base64.b64decode(data))


def colour_of(png: bytes) -> str:
    """Of its first pixel: it has to be the file that was sent."""
    at = png.index(b"IDAT")
    length = int.from_bytes(png[at - 4 : at])
    pixel = zlib.decompress(png[at + 4 : at + 4 + length])[1:4]
    return next((name for name, value in COLOURS.items() if value == pixel), "some other colour")


class ObedientServer(ModelServer):
    """Claude's and Kimi's service."""

    async def next(self, body: dict[str, Any], key: str) -> Reply:
        """What the script says, and then what it is told."""
        planned = bool(self.script)
        reply = await super().next(body, key)
        return reply if planned else answer_to(body)


class ObedientCompletions(CompletionsServer):
    """The native agent's service."""

    async def next(self, body: dict[str, Any], key: str) -> Reply:
        """What the script says, and then what it is told."""
        planned = bool(self.script)
        reply = await super().next(body, key)
        return reply if planned else answer_to(body)
