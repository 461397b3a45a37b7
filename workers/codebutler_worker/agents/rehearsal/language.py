"""The language of the rehearsal agent: a handful of plain sentences that it understands, and its answers. Pure."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

MAX_WAIT_S = 600

Verb = Literal[
    "List",
    "Read",
    "Search",
    "Git",
    "Write",
    "Append",
    "Replace",
    "Delete",
    "Ignore",
    "Review",
    "Wait",
    "Recall",
    "Help",
    "Attached",
    "Commented",
    "Refused",
    "Unknown",
]
"""Besides the obvious: Ignore writes a .gitignore, for the language that a person chooses; Review looks through the
repository, slowly enough for a person to watch; Recall repeats what was said earlier in the conversation; Attached
shows a file that came with the message; Commented answers comments from a page of changes; Refused would leave the
repository; Unknown is not understood."""


class Intent(Struct, frozen=True):
    """Something to do. ``text``: what to find, write or replace (by ``new``); the git subcommand; seconds to wait; the
    media type of an attached file; or the text that was not understood."""

    verb: Verb
    path: str = "."
    text: str = ""
    new: str = ""


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


# Earlier messages are context, not requests; a skill is for agents that can read.
_ASIDE = re.compile(
    r"\A\[record:.*?^\[end of the record\]$\n*|^\[skill [^\n]*\]$.*?^\[end of the skill\]$\n*",
    re.MULTILINE | re.DOTALL,
)


_ABOUT_FILES = re.compile(
    r"(?:please\s+)?(?:read|show(?:\s+me)?|open|look\s+at|see|here(?:'s|’s|\s+is)|what(?:'s|’s|\s+is)\s+in)\s+"
    r"(?:this|these|it|them|the\s+(?:attached\s+)?(?:file|attachment)s?|attached)\b[^\n]*\Z",
    re.IGNORECASE,
)

# The prompt's own text about a resumed run, and about what came with the message.
_NOT_SAID = re.compile(
    r"\[attached file |The machine stopped while you |Your last run met |A person stopped your last run|"
    r"What you had asked is answered"
)


# How comments from a page of changes begin.
_COMMENTS = "Comments on your changes:\n"


def understand(prompt: str) -> list[Intent]:
    """What the prompt asks for, in order; empty only if it says nothing.

    Messages that arrived together are separate paragraphs. A paragraph that asks for nothing and follows a text to
    write belongs to that text; any other is Unknown. Attached files come last.
    """
    prompt = _ASIDE.sub("", prompt)
    found: list[Intent] = []
    if prompt.lstrip().startswith(_COMMENTS):
        return [Intent("Commented")]
    attached = [Intent("Attached", note["path"], note["kind"]) for note in _ATTACHED.finditer(prompt)]
    for paragraph in re.split(r"\n[ \t]*\n", _NOTE.sub("", prompt).strip()):
        text = paragraph.strip()
        if attached and _ABOUT_FILES.match(text):
            continue
        if (intent := _intent(text)) is not None:
            found.append(intent)
        elif found and (last := found[-1]).verb in ("Write", "Append"):
            found[-1] = replace(last, text=f"{last.text}\n\n{paragraph.rstrip()}")
        elif text and not _NOT_SAID.match(text):
            found.append(Intent("Unknown", text=text))
    return [*(_finished(intent) for intent in found), *attached]


def is_inside(path: str) -> bool:
    """Whether a path named by a person stays in the repository, outside git's and our own directory."""
    parts = PurePosixPath(path).parts
    reserved = {"..", ".git", ".codebutler"}
    return not path.startswith(("/", "~")) and "\0" not in path and not reserved & set(parts)


def _intent(text: str) -> Intent | None:
    for verb, pattern in _RULES:
        if match := pattern.search(text):
            groups = {name: value for name, value in match.groupdict().items() if value is not None}
            path = _bare(groups.pop("path", "."))
            return Intent(verb, path, **groups) if is_inside(path) else Intent("Refused", path)
    return None


def _finished(intent: Intent) -> Intent:
    match intent.verb:
        case "Git":
            return replace(intent, text=intent.text.lower() or "status")
        case "Wait":
            return replace(intent, text=str(min(int(intent.text), MAX_WAIT_S)))
        case "Unknown":
            return intent
    return replace(intent, text=_unquoted(intent.text), new=_unquoted(intent.new))


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


# The first match wins, so the more specific sentences come first.
_SENTENCES: Sequence[tuple[Verb, str]] = (
    (
        "Replace",
        rf"\breplace\s+(?P<text>`[^`]+`|\"[^\"]+\"|'[^']+'|.+?)\s+(?:with|by)\s+"
        rf"(?P<new>`[^`]*`|\"[^\"]*\"|'[^']*'|.+?)\s+in\s+{_FILE}{_PATH}{_END}",
    ),
    ("Append", rf"\bappend\s+{_QUOTED}\s+to\s+{_FILE}{_PATH}{_END}"),
    ("Write", rf"\b(?:create|write|make|add)\s+{_FILE}{_PATH}\s+(?:with|containing|saying)\s+{_TEXT}$"),
    ("Write", rf"\b(?:write|put)\s+{_QUOTED}\s+(?:to|into)\s+{_FILE}{_PATH}{_END}"),
    ("Delete", rf"\b(?:delete|remove|rm)\s+{_FILE}{_PATH}{_END}"),
    ("Ignore", rf"\b(?:add|create|make|write)\s+(?:a\s+)?`?\.?gitignore`?{_END}"),
    ("Review", r"\b(?:review|look\s+over|look\s+around)\b[^\n]*\b(?:repo|repository|project)\b"),
    ("Help", rf"^(?:/?help|hi|hello|hey|what\s+can\s+(?:you|i)\s+(?:do|say|ask)[^\n]*){_END}"),
    ("Git", r"\bgit\s+(?P<text>status|diff|log)\b"),
    ("Git", r"\bwhat(?:\s+has|'s|’s)?\s+changed\b"),
    ("Wait", r"\b(?:wait|sleep)\s+(?:for\s+)?(?P<text>\d{1,6})\s*(?:s|sec|seconds?)?\b"),
    ("Search", rf"\b(?:search\s+for|search|grep\s+for|grep|look\s+for|find)\s+{_QUOTED}{_IN}{_END}"),
    ("List", rf"\b(?:list|show)\b[^\n]*?\bfiles\b{_IN}{_END}"),
    ("List", rf"\b(?:what|which)\s+files\b[^\n]*?{_IN}{_END}"),
    ("List", rf"^(?:ls|list|dir)(?:\s+{_PATH})?{_END}"),
    (
        "Recall",
        r"\bwhat\s+(?:did|have)\s+(?:i|we)\s+(?:say|said|ask|asked|talk|write|written)\b|\bdo\s+you\s+remember\b",
    ),
    ("Read", rf"\b(?:read|show|cat|open|print)\s+{_FILE}{_PATH}{_END}"),
)
_RULES = tuple((verb, re.compile(pattern, re.IGNORECASE | re.DOTALL)) for verb, pattern in _SENTENCES)


# Its answers, in Markdown.

MAX_QUOTE_CHARS = 80
MAX_LINES = 200
AT_LEAST = " at least"

INTRODUCTION = (
    "_I am the rehearsal agent, a script without a model. Write `help` to see what else you can try._"
)
REAL_AGENT = (
    "For a real agent, install Claude Code, run `claude` once to log in, then restart with "
    "`codebutler demo --agent claude`."
)
COMMENTED = (
    "I have received your comments. I am the rehearsal agent, a script without a model, so I cannot act on them: "
    f"a real agent answers them and changes the code. {REAL_AGENT}"
)
HELP = f"""\
I am the **rehearsal agent**: a script without a model, so that you can try CodeButler offline and without an account. \
What I do in this repository is real. Try:

- `replace Hello with Good morning in greet.py`: an edit, with its diff
- `delete notes/todo.txt`: asks for your permission first
- `add a .gitignore`: asks you a question
- `review this repository`: follows a plan, step by step

I also understand:

- `list the files`, `list the files in src`, `read README.md`
- `search for TODO`, `search for "def main" in src`
- `git status`, `git diff`, `git log`
- `create hello.txt with Hello!`, `append one more line to hello.txt`
- `wait 30 seconds` (press *Stop* or write `!stop`)
- `what did I say?`
- a text file that you attach: I show what is in it

{REAL_AGENT}"""


def listing(path: str, files: Sequence[str], *, cut: bool = False) -> str:
    """The files that were found; ``cut``, here and below: there are more of them."""
    where = "here" if path in (".", "./") else f"in `{path}`"
    if not files:
        return f"There are no files {where}."
    return "\n".join(
        [
            f"**{_count(len(files), 'file', cut=cut)}** {where}:",
            "",
            *_bullets([f"`{name}`" for name in files], cut=cut),
        ]
    )


def content(path: str, text: str, *, cut: bool = False) -> str:
    """A file's text."""
    if not text.strip():
        return f"`{path}` is empty."
    return f"**`{path}`**\n\n{fenced(text, _language(path), cut=cut)}"


def arrived(path: str, kind: str) -> str:
    """A file arrived that it cannot read."""
    return f"`{path}` has arrived ({kind}). I read text only; a real agent looks at it."


def hits(text: str, lines: Sequence[str], *, cut: bool = False) -> str:
    """The lines in which a text was found."""
    if not lines:
        return f"`{text}` was not found."
    count = _count(len(lines), "line", cut=cut)
    return f"**{count}** with `{text}`:\n\n{fenced(chr(10).join(lines), cut=cut)}"


def git(question: str, text: str, *, cut: bool = False) -> str:
    """Git's answer."""
    silence = "Nothing has changed." if question == "diff" else "git has nothing to say."
    return (
        f"`git {question}`:\n\n{fenced(text, 'diff' if question == 'diff' else '', cut=cut)}"
        if text.strip()
        else silence
    )


def changed(done: str, path: str, before: str | None, after: str | None) -> str:
    """A change, with a diff if both texts are known."""
    if before is None or after is None:
        return f"{done} `{path}`."
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    diff = "\n".join(itertools.islice(lines, 2, None))
    return (
        f"{done} `{path}`:\n\n{fenced(diff, 'diff')}"
        if diff
        else f"{done} `{path}`; it is the same as before."
    )


def not_understood(text: str) -> str:
    """The answer to text that it does not understand: one line, as for any failure."""
    said = " ".join(text.split())
    shown = said if len(said) <= MAX_QUOTE_CHARS else f"{said[:MAX_QUOTE_CHARS]}…"
    return (
        f"I did not understand “{shown}”. I am the rehearsal agent, a script without a model: "
        f"write `help` to see what I can do. {REAL_AGENT}"
    )


def recalled(earlier: Sequence[str]) -> str:
    """What was said earlier."""
    if not earlier:
        return "This is your first message in this conversation."
    quotes = "\n\n".join("> " + text.replace("\n", "\n> ") for text in earlier)
    return f"Before this you said, in this conversation:\n\n{quotes}"


def fenced(text: str, language: str = "", *, cut: bool = False) -> str:
    """A code block that its content cannot close."""
    lines = text.rstrip("\n").split("\n")
    left_out = len(lines) - MAX_LINES
    more = [f"… {_count(left_out, 'more line', cut=cut)}"] if left_out > 0 else ["…"] if cut else []
    fence = "```"
    while any(fence in line for line in lines):
        fence += "`"
    return "\n".join([fence + language, *lines[:MAX_LINES], *more, fence])


def step(tool: str, summary: str) -> str:
    """A step of a plan."""
    if tool == "List":
        return "List the files" if summary == "." else f"List the files in {summary}"
    if tool == "Search":
        return f"Search for {summary}"
    if tool == "Git":
        return f"Run {summary}"
    return f"{tool} {summary}".strip() or "Answer"


def _bullets(items: Sequence[str], *, cut: bool) -> list[str]:
    left_out = len(items) - MAX_LINES
    more = [f"- … {left_out} more{AT_LEAST * cut}"] if left_out > 0 else []
    return [*(f"- {item}" for item in items[:MAX_LINES]), *more]


def _count(number: int, noun: str, *, cut: bool = False) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}{AT_LEAST * cut}"


def _language(path: str) -> str:
    suffix = path.rpartition(".")[2] if "." in path else ""
    return suffix if suffix.isalnum() and len(suffix) < 6 and suffix not in ("txt", "md") else ""
