"""What the rehearsal agent says, in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Sequence

MAX_LINES = 200
AT_LEAST = " at least"

INTRODUCTION = (
    "_I am the rehearsal agent: scripted, offline, no model behind me. Say `help` to see what I can do._"
)
HELP = """\
I am the **rehearsal agent**: scripted and offline, so that you can try CodeButler without an account. There is \
no model behind me, but I really work in this repository. I understand sentences like these:

- `list the files` or `list the files in src`
- `read README.md`
- `search for TODO` or `search for "def main" in src`
- `git status`, `git diff`, `git log`
- `create hello.txt with Hello!`
- `append one more line to hello.txt`
- `replace Hello with Goodbye in hello.txt`
- `wait 30 seconds` (time to try `!stop`)
- `what did I say?`
- a text file that you attach: I show what is in it

For a real agent set `"agent": {"default": "claude"}` in the configuration, or begin a message with `claude:`."""


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
        return f"`{text}` is nowhere to be found."
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


def replaced(path: str, old: str, count: int) -> str:
    """What became of a replacement."""
    if not count:
        return f"`{path}` does not contain `{old}`; I changed nothing."
    return f"Replaced {_count(count, 'occurrence')} of `{old}` in `{path}`."


def recalled(earlier: Sequence[str]) -> str:
    """What was said earlier."""
    if not earlier:
        return "This is the first thing you say to me in this conversation."
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


def _bullets(items: Sequence[str], *, cut: bool) -> list[str]:
    left_out = len(items) - MAX_LINES
    more = [f"- … {left_out} more{AT_LEAST * cut}"] if left_out > 0 else []
    return [*(f"- {item}" for item in items[:MAX_LINES]), *more]


def _count(number: int, noun: str, *, cut: bool = False) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}{AT_LEAST * cut}"


def _language(path: str) -> str:
    suffix = path.rpartition(".")[2] if "." in path else ""
    return suffix if suffix.isalnum() and len(suffix) < 6 and suffix not in ("txt", "md") else ""
