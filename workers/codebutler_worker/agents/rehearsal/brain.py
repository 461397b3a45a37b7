"""From an intent to its tool and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from codebutler_worker.agents.rehearsal import wording
from codebutler_worker.agents.rehearsal.intents import (
    Append,
    Attached,
    Change,
    Delete,
    Git,
    Ignore,
    Intent,
    ListFiles,
    Read,
    Recall,
    Refused,
    Replace,
    Review,
    Search,
    Unknown,
    Wait,
    Write,
)
from codebutler_worker.agents.rehearsal.tools import ToolError, Tools

REVIEW: tuple[Intent, ...] = (ListFiles(), Search("TODO"), Git("log"), Git("status"))

DONE = MappingProxyType({"Write": "Wrote", "Append": "Added to", "Replace": "Changed", "Delete": "Deleted"})


def steps_of(intents: Sequence[Intent]) -> list[Intent]:
    """The intents, a review as its steps."""
    return [step for intent in intents for step in (REVIEW if intent == Review() else (intent,))]


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
        case Write(path, _) | Append(path, _) | Replace(path, _, _) | Delete(path):
            return type(intent).__name__, path
        case Ignore():
            return "Write", ".gitignore"
        case Wait(seconds):
            return "Wait", f"{seconds} s"
        case _:
            return "", ""


def check(intent: Intent, tools: Tools) -> None:
    """Raises ToolError for what cannot be done, before anybody is asked about it."""
    match intent:
        case Delete(path):
            tools.require(path)
        case Refused(path):
            raise ToolError(f"{path} is off limits: I only touch files of this repository.")
        case Unknown(text):
            raise ToolError(wording.not_understood(text))


async def carried_out(intent: Intent, tools: Tools, earlier: Sequence[str]) -> str:
    """Do what ``check`` has passed; the answer. Raises ToolError and SandboxUnavailableError."""
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
        case Write() | Append() | Replace() | Delete():
            return await _changed(intent, tools)
        case _:
            return wording.HELP


async def _changed(intent: Change, tools: Tools) -> str:
    """Change a file; the answer shows the difference."""
    before = await tools.text(intent.path)
    match intent:
        case Write(path, text):
            await tools.write(path, text)
        case Append(path, text):
            await tools.append(path, text)
        case Delete(path):
            await tools.delete(path)
        case Replace(path, old, new):
            if not await tools.replace(path, old, new):
                raise ToolError(f"{path} does not contain {old}; I changed nothing.")
    done = DONE[type(intent).__name__]
    try:
        after = "" if isinstance(intent, Delete) else await tools.text(intent.path)
    except ToolError as error:
        raise ToolError(f"{done} `{intent.path}`, but I could not read it again: {error}") from error
    return wording.changed(done, intent.path, before, after)
