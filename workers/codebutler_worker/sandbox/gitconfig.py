"""Git's configuration files: their syntax (git-config(1), config.c), the values that git runs as programs, and the
paths in a repository that they refer to.

We do not ask git itself: that would be one more process, outside the sandbox, for every program start.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.destinations import (
    UnsafePathError,
    area_of,
    make_directory,
    read_regular,
    status_beneath,
)

ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}
_SECTION = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:\\.|[^"\\\n])*)")?\]')
_ESCAPED = re.compile(r"\\(.)")
_PART = re.compile(r'\\(?:\n|([ntb\\"]))|["#;]|[^\S\n]+|[^\\"#;\s]+')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=)?")
# The last part of a key that names a program. Newer keys follow the same naming (hook.<name>.command).
_PROGRAM = re.compile(
    r"(command|cmd|program|helper|editor|pager|hook|driver|textconv|clean|smudge|process|external|askpass|gitproxy"
    r"|fsmonitor|uploadpack|receivepack|difffilter)$|^pager\.|tool\..*\.path$"
)
_SEPARATORS = frozenset("();<>|&\n")
_KEYWORDS = frozenset({"{", "!", "if", "then", "else", "while", "do", "exec", "env"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class MalformedConfigError(ValueError):
    """The file is malformed; git could not read it either."""


def settings(text: str) -> Iterator[tuple[str, str]]:
    """(key, value) of each setting with a value, as git reads them: section and last part in lower case.

    Raises MalformedConfigError.
    """
    text, at, section = text.removeprefix("\ufeff").replace("\r\n", "\n") + "\n\n", 0, ""
    while at < len(text):
        sign = text[at]
        if sign.isspace():
            at += 1
        elif sign in "#;":
            at = text.index("\n", at)
        elif found := _SECTION.match(text, at):
            below = _ESCAPED.sub(r"\1", found[2]) if found[2] is not None else None
            section, at = found[1].lower() + ("" if below is None else f".{below}"), found.end()
        elif found := _KEY.match(text, at):
            value, at = _value(text, found.end()) if found[2] else ("", found.end())
            if found[2]:
                yield f"{section}.{found[1].lower()}".removeprefix("."), value
        else:
            raise MalformedConfigError(f"line {text.count(chr(10), 0, at) + 1} is not valid")


def _value(text: str, at: int) -> tuple[str, int]:
    """The value that starts here, and where its line ends."""
    kept, length, quoted = "", 0, False
    while text[at] != "\n":
        if (part := _PART.match(text, at)) is None:
            raise MalformedConfigError(f"line {text.count(chr(10), 0, at) + 1} has an unknown escape")
        said, at = part[0], part.end()
        if said == '"':
            quoted = not quoted
        elif said[0] == "\\":
            kept += ESCAPES.get(part[1], "")  # a backslash before the end of the line joins two lines
            length = len(kept)
        elif said in "#;" and not quoted:
            at = text.index("\n", at)
        elif kept or quoted or not said.isspace():
            kept += said
            length = len(kept) if quoted or not said.isspace() else length
    if quoted:
        raise MalformedConfigError(f"line {text.count(chr(10), 0, at) + 1} has an unterminated quote")
    return kept[:length], at


def kind_of(key: str, value: str) -> Literal["include", "directory", "program", "other"]:
    """What the value is to git: another configuration file (under any condition), a directory of programs, a program,
    or none of these."""
    if key == "include.path" or (key.startswith("includeif.") and key.endswith(".path")):
        return "include"
    if key in DIRECTORIES:
        return "directory"
    if value.startswith("!") or (_PROGRAM.search(key) and not key.startswith("alias.")):
        return "program"
    return "other"


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


# What git's configuration refers to inside a checkout: anyone who can write there makes the owner's next `git commit`
# run their code.
#
# `core.hooksPath=.husky` or a configuration file in the work tree is as dangerous as `.git/hooks` and `.git/config`,
# and so is a script there that a filter, a pager or an alias names. Blocking.

CONFIG_BYTES = 2**20
FILES_AT_MOST = 200
DIRECTORIES = ("core.hookspath", "init.templatedir")
HUSKY = "_"
"""husky makes git look for hooks in `.husky/_`, and those run the ones in `.husky`."""
MISSING = (
    "git's configuration ({key} in {file}) names {path}, which is not there: an agent could create it, and your git "
    "would run it. Create it, or remove that setting"
)
TOO_WIDE = "git's configuration ({key} in {file}) names {path}, where agents work: name another directory"


class Setting(Struct, frozen=True):
    """One value, and the file it is in."""

    file: Path
    key: str
    value: str


class Pointed(Struct):
    """The paths found in the work tree ``root`` and the git directory ``git``, which must become ``fixed``.
    ``private``: the part of the work tree hidden from agents; ``home``: the home of the user who runs git here."""

    root: Path
    git: Path
    home: Path
    private: Path
    fixed: set[Path] = field(default_factory=set)
    _read: set[Path] = field(default_factory=set)

    def read_all(self, besides: Collection[Path] = ()) -> tuple[Path, ...]:
        """Read every configuration that git reads here; returns the paths found that are in none of ``besides``.
        Raises SandboxUnavailableError, UnsafePathError."""
        usual = (Path("/etc/gitconfig"), self.home / ".config/git/config", self.home / ".gitconfig")
        for file in (*usual, self.git / "config"):
            self._file(file, self.root)
        main = (self.root / ".git").is_dir()
        self._file(self.git / "config.worktree", self.root if main else None)
        for entry in sorted((self.git / "worktrees").glob("*/config.worktree")):
            self._file(entry, None if main else self.root)
        return tuple(
            sorted(path for path in self.fixed if not any(path.is_relative_to(one) for one in besides))
        )

    def _file(self, file: Path, base: Path | None) -> None:
        """``base``: what relative names are relative to; None = another work tree."""
        if file in self._read:
            return
        self._read.add(file)
        if len(self._read) > FILES_AT_MOST:
            raise SandboxUnavailableError(
                f"git's configuration includes more than {FILES_AT_MOST} files: {file}"
            )
        area, real = area_of(file, (self.git, self.root)), file
        if area is None:  # its owner's own, who may have made links
            area, real = Path("/"), Path(os.path.realpath(file))
        try:
            text = read_regular(area, str(real.relative_to(area)), CONFIG_BYTES).decode(errors="replace")
            found = [Setting(file, key, value) for key, value in settings(text) if value]
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return  # git ignores it then too
        except MalformedConfigError as error:
            raise SandboxUnavailableError(f"git cannot read {file}: {error}") from error
        for setting in found:
            kind = kind_of(setting.key, setting.value)
            if kind == "include":
                included = self._path(setting.value, file.parent)
                self._pin(setting, included, required=True)
                self._file(included, base)
            elif kind == "directory":
                self._directory(setting, base)
            elif kind == "program":
                self._program(setting, base)

    def _directory(self, setting: Setting, base: Path | None) -> None:
        path = self._located(setting.value, base)
        if path is None or (area := area_of(path, (self.git, self.root))) is None:
            return
        if path.name == HUSKY and path.parent != area:
            path = path.parent
        if path == area:
            raise SandboxUnavailableError(_said(TOO_WIDE, setting, path))
        if self._hidden(setting, path):
            return
        found = self._made(setting, area, path)
        self.fixed.add(path)
        for entry in found:
            if entry.is_symlink():
                self._pin(setting, Path(os.path.realpath(entry)), required=True)

    def _made(self, setting: Setting, area: Path, path: Path) -> list[Path]:
        """The entries of the directory, which is created if missing."""
        try:
            for step in (*reversed(path.relative_to(area).parents[:-1]), path.relative_to(area)):
                if status_beneath(area, str(step)) is None:
                    make_directory(area / step.parent, step.name, 0o755)
            return sorted(path.iterdir())
        except UnsafePathError:
            raise
        except OSError as error:
            told = f"cannot be used as a directory ({error.strerror})"
            raise SandboxUnavailableError(f"{path}, {setting.key} in {setting.file}, {told}") from error

    def _program(self, setting: Setting, base: Path | None) -> None:
        for word, first in words(setting.value):
            named = word.partition("=")[2] if word.startswith("-") else word
            # We cannot know how a shell expands a variable.
            if not named or (first and "/" not in named) or "$" in named or "`" in named:
                continue
            if (path := self._located(named, base)) is not None:
                self._pin(setting, path, required=first)

    def _pin(self, setting: Setting, path: Path, *, required: bool) -> None:
        """Fix the file ``path``. If it is missing, an agent could create it; if a link leads to it, an agent could
        replace it."""
        if (
            (area := area_of(path, (self.git, self.root))) is None
            or path == area
            or self._hidden(setting, path)
        ):
            return
        try:
            found = status_beneath(area, str(path.relative_to(area)))
        except UnsafePathError:
            if required or path.is_file():
                raise
            return
        except OSError:  # a component is a file, or the name is not a valid one
            found = None
        if found is None and required:
            raise SandboxUnavailableError(_said(MISSING, setting, path))
        if found is not None and stat.S_ISREG(found.st_mode):
            self.fixed.add(path)

    def _hidden(self, setting: Setting, path: Path) -> bool:
        """Whether agents cannot see it. A program may not be among the files that agents exchange with people."""
        if not path.is_relative_to(self.private):
            return False
        if path.relative_to(self.private).parts[:1] in (("files",), ("images",)):
            raise SandboxUnavailableError(_said(TOO_WIDE, setting, path))
        return True

    def _located(self, name: str, base: Path | None) -> Path | None:
        if base is None and not name.startswith(("/", "~/")):
            return None
        return self._path(name, base or Path("/"))

    def _path(self, name: str, base: Path) -> Path:
        """Where git finds it. A link outside may lead inside; a link inside stays unresolved, for the check that
        rejects links."""
        named = self.home / name[2:] if name.startswith("~/") else base / name
        path = Path(os.path.normpath(named))
        return path if area_of(path, (self.git, self.root)) else Path(os.path.realpath(path))


def _said(text: str, setting: Setting, path: Path) -> str:
    return text.format(key=setting.key, file=setting.file, path=path)
