"""Git's configuration files: their syntax (git-config(1), config.c), and which of their values git starts. Pure.

Not asked of git itself: that is a process for each start of a program, and one outside the sandbox.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}
_SECTION = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:\\.|[^"\\\n])*)")?\]')
_PART = re.compile(r'\\(?:\n|([ntb\\"]))|["#;]|[^\S\n]+|[^\\"#;\s]+')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=)?")
# The last word of a key whose value names a program. What git adds is named alike (hook.<name>.command).
_PROGRAM = re.compile(
    r"(command|cmd|program|helper|editor|pager|hook|driver|textconv|clean|smudge|process|external|askpass|gitproxy"
    r"|fsmonitor|uploadpack|receivepack|difffilter)$|^pager\.|tool\..*\.path$"
)
_SEPARATORS = frozenset("();<>|&\n")
_KEYWORDS = frozenset({"{", "!", "if", "then", "else", "while", "do", "exec", "env"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class MalformedError(ValueError):
    """Git would not read this, either."""


def settings(text: str) -> Iterator[tuple[str, str]]:
    """(key, value) of each setting with a value, as git reads them: section and last word in lower case.

    Raises MalformedError.
    """
    text, at, section = text.removeprefix("\ufeff").replace("\r\n", "\n") + "\n\n", 0, ""
    while at < len(text):
        sign = text[at]
        if sign.isspace():
            at += 1
        elif sign in "#;":
            at = text.index("\n", at)
        elif found := _SECTION.match(text, at):
            below = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else None
            section, at = found[1].lower() + ("" if below is None else f".{below}"), found.end()
        elif found := _KEY.match(text, at):
            value, at = _value(text, found.end()) if found[2] else ("", found.end())
            if found[2]:
                yield f"{section}.{found[1].lower()}".removeprefix("."), value
        else:
            raise MalformedError(f"line {text.count(chr(10), 0, at) + 1} is none of git's")


def _value(text: str, at: int) -> tuple[str, int]:
    """The value that begins here, and where its line ends."""
    kept, length, quoted = "", 0, False
    while text[at] != "\n":
        if (part := _PART.match(text, at)) is None:
            raise MalformedError(f"line {text.count(chr(10), 0, at) + 1} has an unknown escape")
        said, at = part[0], part.end()
        if said == '"':
            quoted = not quoted
        elif said[0] == "\\":
            kept += ESCAPES.get(part[1], "")  # the end of a line goes
            length = len(kept)
        elif said in "#;" and not quoted:
            at = text.index("\n", at)
        elif kept or quoted or not said.isspace():
            kept += said
            length = len(kept) if quoted or not said.isspace() else length
    if quoted:
        raise MalformedError(f"line {text.count(chr(10), 0, at) + 1} has a quote without an end")
    return kept[:length], at


def is_include(key: str) -> bool:
    """Whether the value is a file of more configuration, under whatever condition."""
    return key == "include.path" or (key.startswith("includeif.") and key.endswith(".path"))


def is_program(key: str, value: str) -> bool:
    """Whether git starts the value."""
    if key.startswith("alias."):
        return value.startswith("!")
    return value.startswith("!") or _PROGRAM.search(key) is not None


def words(value: str) -> Iterator[tuple[str, bool]]:
    """The words of a command, and whether each is the program itself."""
    lexer = shlex.shlex(value.removeprefix("!"), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        found = list(lexer)
    except ValueError:
        found = value.split()
    first = True
    for word in found:
        if set(word) <= _SEPARATORS:
            first = not {"<", ">"} & set(word)
        elif first and (assigned := _ASSIGNMENT.match(word)):
            yield word[assigned.end() :], False
        elif word in _KEYWORDS:
            first = True
        else:
            yield word, first
            first = False
