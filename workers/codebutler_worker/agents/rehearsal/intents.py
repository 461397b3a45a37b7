"""What the rehearsal agent understands: a handful of plain sentences. Pure; it guesses nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

MAX_WAIT_S = 600


@dataclass(frozen=True, slots=True)
class ListFiles:
    """List the files of a directory."""

    path: str = "."


@dataclass(frozen=True, slots=True)
class Read:
    """Show a file."""

    path: str


@dataclass(frozen=True, slots=True)
class Search:
    """Find a text."""

    text: str
    path: str = "."


@dataclass(frozen=True, slots=True)
class Git:
    """``question`` is status, diff or log."""

    question: str


@dataclass(frozen=True, slots=True)
class Write:
    """Write a file anew."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Append:
    """Add a line to a file."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Put ``new`` in place of every ``old``."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a file, once a person has allowed it."""

    path: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """Write a .gitignore, for the language that a person chooses."""


@dataclass(frozen=True, slots=True)
class Review:
    """Look the repository over, step by step, so slowly that a person can watch."""


@dataclass(frozen=True, slots=True)
class Help:
    """Tell what can be asked for."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not understood."""

    text: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a while."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Recall:
    """Tell what was said earlier in this conversation."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A file that came with the message; ``kind`` is its media type."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Understood, but the path leaves the repository."""

    path: str


Change = Write | Append | Replace | Delete
Intent = (
    ListFiles
    | Read
    | Search
    | Git
    | Change
    | Ignore
    | Review
    | Wait
    | Recall
    | Help
    | Attached
    | Refused
    | Unknown
)

_PATH = r"(?P<path>`[^`\n]+`|\"[^\"\n]+\"|'[^'\n]+'|[^\s`\"']+)"
_IN = rf"(?:\s+(?:in|of|under|below|inside)\s+(?:the\s+)?(?:folder\s+|directory\s+|file\s+)?{_PATH})?"
_FILE = r"(?:me\s+)?(?:the\s+|a\s+)?(?:new\s+)?(?:file\s+)?(?:called\s+|named\s+)?"
_TEXT = r"(?:the\s+(?:text|contents?|line)\s*:?\s*|(?:text|contents?):\s*)?(?P<text>.+)"
_QUOTED = r"(?P<text>`[^`]+`|\"[^\"]+\"|'[^']+'|“[^”]+”|.+?)"
_END = r"\s*[.?!]*\s*$"


# As the prompt names them: always in the repository's own directory for files.
_NOTE = re.compile(r"^\[attached file[ :].*\]$\n*", re.MULTILINE)
_ATTACHED = re.compile(
    r"^\[attached file: .*/(?P<path>\.codebutler/files/[^\s/]+) \((?P<kind>[^(),]*), [^()]*\)\]$",
    re.MULTILINE,
)


# What was said before is known, not asked for; a skill is for agents that can read.
_ASIDE = re.compile(
    r"\A\[record:.*?^\[end of the record\]$\n*|^\[skill [^\n]*\]$.*?^\[end of the skill\]$\n*",
    re.MULTILINE | re.DOTALL,
)


_ABOUT_FILES = re.compile(
    r"(?:please\s+)?(?:read|show(?:\s+me)?|open|look\s+at|see|here(?:'s|’s|\s+is)|what(?:'s|’s|\s+is)\s+in)\s+"
    r"(?:this|these|it|them|the\s+(?:attached\s+)?(?:file|attachment)s?|attached)\b[^\n]*\Z",
    re.IGNORECASE,
)

# What the prompt itself says of a run that goes on, and of what came beside the words.
_NOT_SAID = re.compile(
    r"\[attached file |The machine stopped while you |Your last run met |A person stopped your last run|"
    r"What you had asked is answered"
)


def understand(prompt: str) -> list[Intent]:
    """What the prompt asks for, in order; empty only if it says nothing.

    Messages that arrived together are separate paragraphs. One that asks for nothing and follows a text to
    write belongs to that text; any other is Unknown. Files that came with it are looked at last.
    """
    prompt = _ASIDE.sub("", prompt)
    found: list[Intent] = []
    attached = [Attached(note["path"], note["kind"]) for note in _ATTACHED.finditer(prompt)]
    for paragraph in re.split(r"\n[ \t]*\n", _NOTE.sub("", prompt).strip()):
        text = paragraph.strip()
        if attached and _ABOUT_FILES.match(text):
            continue
        if (intent := _intent(text)) is not None:
            found.append(intent)
        elif found and isinstance(last := found[-1], Write | Append):
            found[-1] = replace(last, text=f"{last.text}\n\n{paragraph.rstrip()}")
        elif text and not _NOT_SAID.match(text):
            found.append(Unknown(text))
    return [*(_finished(intent) for intent in found), *attached]


def is_inside(path: str) -> bool:
    """Whether a path named by a person stays in the repository, outside git's and our own directory."""
    parts = PurePosixPath(path).parts
    reserved = {"..", ".git", ".codebutler"}
    return not path.startswith(("/", "~")) and "\0" not in path and not reserved & set(parts)


def _intent(text: str) -> Intent | None:
    for pattern, make in _RULES:
        if match := pattern.search(text):
            groups = {name: value for name, value in match.groupdict().items() if value is not None}
            path = _bare(groups.get("path", "."))
            return make(groups | {"path": path}) if is_inside(path) else Refused(path)
    return None


def _finished(intent: Intent) -> Intent:
    if isinstance(intent, Write | Append):
        return replace(intent, text=_unquoted(intent.text))
    return intent


def _bare(path: str) -> str:
    unquoted = path.strip("`\"'")
    return unquoted.rstrip("?!,;:").removesuffix(".") or "." if unquoted == path else unquoted


def _unquoted(text: str) -> str:
    """The text within quotes or a fence, else the text."""
    text = text.strip("\n")
    if fence := re.fullmatch(r"\s*(`{3,})[^\n]*\n(.*?)\n?\1\s*", text, re.DOTALL):
        return fence[2]
    stripped = text.strip()
    if (
        len(stripped) > 1
        and stripped[0] + stripped[-1] in ('""', "''", "``", "“”")
        and stripped[0] not in stripped[1:-1]
    ):
        return stripped[1:-1]
    return text


def _rule(
    pattern: str, make: Callable[[dict[str, str]], Intent]
) -> tuple[re.Pattern[str], Callable[[dict[str, str]], Intent]]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), make


# The first that matches wins, so the more particular sentences come first.
_RULES: Sequence[tuple[re.Pattern[str], Callable[[dict[str, str]], Intent]]] = (
    _rule(
        rf"\breplace\s+(?P<old>`[^`]+`|\"[^\"]+\"|'[^']+'|.+?)\s+(?:with|by)\s+(?P<new>`[^`]*`|\"[^\"]*\"|'[^']*'|.+?)\s+in\s+{_FILE}{_PATH}{_END}",
        lambda found: Replace(found["path"], _unquoted(found["old"]), _unquoted(found["new"])),
    ),
    _rule(
        rf"\bappend\s+{_QUOTED}\s+to\s+{_FILE}{_PATH}{_END}",
        lambda found: Append(found["path"], found["text"]),
    ),
    _rule(
        rf"\b(?:create|write|make|add)\s+{_FILE}{_PATH}\s+(?:with|containing|saying)\s+{_TEXT}$",
        lambda found: Write(found["path"], found["text"]),
    ),
    _rule(
        rf"\b(?:write|put)\s+{_QUOTED}\s+(?:to|into)\s+{_FILE}{_PATH}{_END}",
        lambda found: Write(found["path"], found["text"]),
    ),
    _rule(rf"\b(?:delete|remove|rm)\s+{_FILE}{_PATH}{_END}", lambda found: Delete(found["path"])),
    _rule(rf"\b(?:add|create|make|write)\s+(?:a\s+)?`?\.?gitignore`?{_END}", lambda _: Ignore()),
    _rule(
        r"\b(?:review|look\s+over|look\s+around)\b[^\n]*\b(?:repo|repository|project)\b", lambda _: Review()
    ),
    _rule(
        rf"^(?:/?help|hi|hello|hey|what\s+can\s+(?:you|i)\s+(?:do|say|ask)[^\n]*){_END}",
        lambda _: Help(),
    ),
    _rule(r"\bgit\s+(?P<question>status|diff|log)\b", lambda found: Git(found["question"].lower())),
    _rule(r"\bwhat(?:\s+has|'s|’s)?\s+changed\b", lambda _: Git("status")),
    _rule(
        r"\b(?:wait|sleep)\s+(?:for\s+)?(?P<seconds>\d{1,6})\s*(?:s|sec|seconds?)?\b",
        lambda found: Wait(min(int(found["seconds"]), MAX_WAIT_S)),
    ),
    _rule(
        rf"\b(?:search\s+for|search|grep\s+for|grep|look\s+for|find)\s+{_QUOTED}{_IN}{_END}",
        lambda found: Search(_unquoted(found["text"]), found["path"]),
    ),
    _rule(rf"\b(?:list|show)\b[^\n]*?\bfiles\b{_IN}{_END}", lambda found: ListFiles(found["path"])),
    _rule(rf"\b(?:what|which)\s+files\b[^\n]*?{_IN}{_END}", lambda found: ListFiles(found["path"])),
    _rule(rf"^(?:ls|list|dir)(?:\s+{_PATH})?{_END}", lambda found: ListFiles(found["path"])),
    _rule(
        r"\bwhat\s+(?:did|have)\s+(?:i|we)\s+(?:say|said|ask|asked|talk|write|written)\b|\bdo\s+you\s+remember\b",
        lambda _: Recall(),
    ),
    _rule(rf"\b(?:read|show|cat|open|print)\s+{_FILE}{_PATH}{_END}", lambda found: Read(found["path"])),
)
