"""What the rehearsal agent says, in Markdown. Pure."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Sequence

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
    """A file came that it cannot read."""
    return f"`{path}` has arrived ({kind}). I read text only; a real agent looks at it."


def hits(text: str, lines: Sequence[str], *, cut: bool = False) -> str:
    """The lines in which a text was found."""
    if not lines:
        return f"`{text}` was not found."
    count = _count(len(lines), "line", cut=cut)
    return f"**{count}** with `{text}`:\n\n{fenced(chr(10).join(lines), cut=cut)}"


def git(question: str, text: str, *, cut: bool = False) -> str:
    """What git answered."""
    silence = "Nothing has changed." if question == "diff" else "git has nothing to say."
    return (
        f"`git {question}`:\n\n{fenced(text, 'diff' if question == 'diff' else '', cut=cut)}"
        if text.strip()
        else silence
    )


def changed(done: str, path: str, before: str | None, after: str | None) -> str:
    """A change, with its difference where both texts are known."""
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
    """What is said to words that mean nothing to it: one line, as for any failure."""
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
    """A code block that its content cannot end."""
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
