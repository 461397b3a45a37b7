"""From an intent to its tool and its answer."""

from __future__ import annotations

from collections.abc import Sequence

from codebutler_worker.agents.rehearsal import wording
from codebutler_worker.agents.rehearsal.intents import (
    Append,
    Attached,
    Git,
    Intent,
    ListFiles,
    Read,
    Recall,
    Refused,
    Replace,
    Search,
    Wait,
    Write,
)
from codebutler_worker.agents.rehearsal.tools import ToolError, Tools


def described(intent: Intent) -> tuple[str, str]:
    """The tool's name and one line on what it does; an empty name for what needs no tool."""
    match intent:
        case ListFiles(path):
            return "List", path
        case Read(path) | Attached(path, _):
            return "Read", path
        case Search(text, _):
            return "Search", text
        case Git(question):
            return "Git", f"git {question}"
        case Write(path, _) | Append(path, _) | Replace(path, _, _):
            return type(intent).__name__, path
        case Wait(seconds):
            return "Wait", f"{seconds} s"
        case Recall() | Refused():
            return "", ""


async def carried_out(intent: Intent, tools: Tools, earlier: Sequence[str]) -> str:
    """Do it; the answer. Raises ToolError and SandboxUnavailableError."""
    match intent:
        case ListFiles(path):
            found = await tools.files(path)
            return wording.listing(path, found.lines, cut=found.cut)
        case Attached(path, kind):
            try:
                read = await tools.read(path)
            except ToolError:
                return wording.arrived(path, kind)
            return wording.content(path, read.text, cut=read.cut)
        case Read(path):
            read = await tools.read(path)
            return wording.content(path, read.text, cut=read.cut)
        case Search(text, path):
            found = await tools.search(text, path)
            return wording.hits(text, found.lines, cut=found.cut)
        case Git(question):
            said = await tools.git(intent)
            return wording.git(question, said.text, cut=said.cut)
        case Wait(seconds):
            await tools.wait(seconds)
            return f"I waited {seconds} seconds."
        case Recall():
            return wording.recalled(earlier)
        case Refused(path):
            return f"`{path}` is not mine to touch: I stay in this repository."
        case _:
            return await _changed(intent, tools)


async def _changed(intent: Write | Append | Replace, tools: Tools) -> str:
    match intent:
        case Write(path, text):
            await tools.write(path, text)
            return f"Wrote `{path}`:\n\n{wording.fenced(text)}"
        case Append(path, text):
            await tools.append(path, text)
            return f"Appended to `{path}`:\n\n{wording.fenced(text)}"
        case Replace(path, old, new):
            return wording.replaced(path, old, await tools.replace(path, old, new))
