"""``memory.md``: what is remembered about a repository, one fact per line.

The worker, `codebutler memory` and people's editors share the file. Our code holds a lock while it reads,
changes and writes it as a whole, never through a link. A fact is a line that starts with a bullet; everything
else in the file belongs to people and stays as it is. A model may add facts and rewrite them; only
consolidation and people remove them.

Lines are proposed by a model that has read an agent's text, and an agent reads strangers' files and pages. So
a line is a short plain sentence: anything that could end its frame, is invisible or poses as somebody else is
removed.
"""

from __future__ import annotations

import fcntl
import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from codebutler.config.paths import RepoPaths
from codebutler.domain.errors import CodeButlerError, ConfigError
from codebutler.platform.files import PrivateDir
from codebutler.text.redact import Redactor

MEMORY_NAME = "memory.md"
MAX_BYTES = 256 * 1024
MAX_LINE_CHARS = 300
BULLET = "- "
_BULLETS = re.compile(r"^(?:[-*+•·‣](?:\s+|$)|#+\s*|\d{1,3}[.)](?:\s+|$))+")
_LOOKALIKES = str.maketrans({"<": "‹", ">": "›", "`": "'", "\N{FULLWIDTH LESS-THAN SIGN}": "‹"})
_INSTRUCTIONS = (
    r"\b(ignore|disregard|forget|override|bypass|overrule)\b.{0,60}\b(instruction|rule|restriction|prompt|order|above"
    r"|previous|earlier|safety|approval|permission|polic)",
    r"\b(system|developer)\s+(prompt|message|note|instruction)",
    r"^\s*(system|assistant|human|user|developer|tool)\s*:",
    r"\[/?(inst|system|sys)\b|\|im_(start|end)\||‹/?\s*(memory|system|instruction|prompt)",
    r"\b(curl|wget|iwr|invoke-webrequest)\b.{0,200}(\||;|&&|\$\(|\b(ba|z)?sh\b|-d\b|--data|--upload|-T\b|-F\b)",
    r"\b(curl|wget|nc|ncat|scp)\b.{0,80}(https?://|@)",
    r"\b(upload|send|post|exfiltrat\w*|leak|copy|e-?mail|paste)\b.{0,80}(\.env\b|\b(secret|token|key|password|credential|ssh))",
    r"\b(without|never|no need to|don'?t|do not|skip|stop)\b.{0,30}\b(ask|approv|confirm|permission|review|sandbox)",
    r"\brm\s+-\w*[rf]|--no-verify|--force\b|--dangerously|\bforce[- ]push|chmod\s+(-R\s+)?777",
    r"\bsudo\b|bypasspermissions",
    r"\b(you|agents?|claude|assistant|the model)\s+(must|should|shall|have to|are (now|allowed|permitted))\b",
    r"\b(reveal|print|show|repeat)\b.{0,40}\b(system prompt|instructions|secrets?|tokens?|credentials?)\b",
    r"[A-Za-z0-9+/=]{80,}",
)
"""Patterns of instructions to an agent, or of harm, rather than facts. A tripwire, not a barrier: a match
only means that a person has to look."""
_INSTRUCTION = re.compile("|".join(_INSTRUCTIONS), re.IGNORECASE)
MAX_FACTS = 200
MAX_TEXT_CHARS = 24_000
FULL_SHARE = 0.8
"""Above this share of the limits it is consolidated."""
Refusal = Literal["empty", "known", "unknown", "full"]


class MemoryFile(Struct, frozen=True):
    """The memory of the repository at ``repo``. Blocking: use it in a thread."""

    repo: Path

    @property
    def path(self) -> Path:
        """Its path."""
        return RepoPaths(self.repo).root / MEMORY_NAME

    def read(self) -> str:
        """Its text, "" if there is none. Raises CodeButlerError if it is not a regular file of a reasonable
        size."""
        try:
            with RepoPaths(self.repo).open() as directory:
                return _text(directory)
        except FileNotFoundError:
            return ""
        except PermissionError as error:
            raise ConfigError(
                f"cannot read {self.path}: permission denied: check its owner and mode"
            ) from error

    def change(self, work: Callable[[str], ApplyResult]) -> ApplyResult:
        """Replace the text by the result of ``work``. Raises CodeButlerError, and the file is unchanged."""
        try:
            with RepoPaths(self.repo).open() as directory:
                lock = os.open(directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    result = work(_text(directory, errors="strict"))
                    if result.applied:
                        directory.write(MEMORY_NAME, result.text.encode())
                    return result
                finally:
                    os.close(lock)
        except FileNotFoundError as error:
            raise CodeButlerError(
                f"{RepoPaths(self.repo).root} does not exist: register the repository with `codebutler add-repo`"
            ) from error
        except UnicodeDecodeError as error:
            raise CodeButlerError(
                f"{self.path} is not UTF-8, and stays as it is: save it as UTF-8"
            ) from error
        except PermissionError as error:
            raise CodeButlerError(f"cannot open {self.path}: permission denied: check its owner") from error


def _text(directory: PrivateDir, errors: Literal["replace", "strict"] = "replace") -> str:
    data = directory.read(MEMORY_NAME, MAX_BYTES)
    return "" if data is None else data.decode("utf-8", errors)


def clean_fact(text: str) -> str:
    """The fact as one line without its bullet: no control, format or private characters, no tags, no code
    marks, at most 300 characters; "" if nothing is left."""
    visible_text = "".join(" " if each.isspace() else each for each in text if not _is_hidden(each))
    plain = " ".join(unicodedata.normalize("NFC", visible_text).translate(_LOOKALIKES).split())
    line = _BULLETS.sub("", plain)
    return line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1].rstrip() + "…"


def visible(text: str) -> str:
    """A text of several lines as people see it: without characters that are invisible or change the reading
    direction."""
    return "\n".join("".join(char for char in line if not _is_hidden(char)) for line in text.splitlines())


def suspicious_words(line: str) -> str:
    """Why a person should check the line before it is kept: the suspicious words; "" if there are none."""
    found = _INSTRUCTION.search(unicodedata.normalize("NFKC", line))
    return found[0].strip()[:60] if found else ""


def holds_secret(line: str, redactor: Redactor) -> bool:
    """Whether it contains a secret, which must not be stored."""
    return redactor.redact(line) != line


def _is_hidden(char: str) -> bool:
    """Whether it is invisible, changes the reading direction or has a private meaning."""
    if char.isspace():
        return False  # becomes a space
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn") or 0xFE00 <= ord(char) <= 0xFE0F


class FactChange(Struct, frozen=True):
    """One change of a fact: without ``old`` it is new, without ``new`` it is removed. No bullets."""

    old: str = ""
    new: str = ""

    @property
    def kind(self) -> Literal["append", "replace", "remove"]:
        """The change as words for the log."""
        return "append" if not self.old else "replace" if self.new else "remove"

    @property
    def inverse(self) -> FactChange:
        """The reverse change."""
        return FactChange(self.new, self.old)


class ApplyResult(Struct, frozen=True):
    """The text after all changes: those ``applied``, and those refused, with the reason."""

    text: str
    applied: tuple[FactChange, ...] = ()
    refused: tuple[tuple[FactChange, Refusal], ...] = ()


def facts_of(text: str) -> tuple[str, ...]:
    """The facts in the text, in order, without their bullets."""
    return tuple(fact for line in text.splitlines() if (fact := _fact(line)))


def apply_changes(changes: Sequence[FactChange], text: str, *, verbatim: bool = False) -> ApplyResult:
    """``text`` with the changes applied in order. Applying the same changes again refuses them all.

    A changed fact must be in it word for word; an added one must not be; and nothing is added to a full
    memory. ``verbatim``: text that people once wrote is restored as it was; a model's words are cleaned.
    """
    # With their ends, so that people's lines stay as they are.
    lines = text.splitlines(keepends=True)
    line_end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    applied_changes: list[FactChange] = []
    refused: list[tuple[FactChange, Refusal]] = []
    for change in changes:
        new = " ".join(change.new.split()) if verbatim else clean_fact(change.new)
        why = _refusal(change, new, lines)
        if why:
            refused.append((change, why))
            continue
        found = _index_of(change.old, lines) if change.old else None
        at = len(lines) if found is None else found
        if lines and lines[-1] == lines[-1].rstrip("\r\n"):
            lines[-1] += line_end
        lines[at : at + 1] = [BULLET + new + line_end] if new else []
        applied_changes.append(FactChange(change.old, new))
    return ApplyResult("".join(lines) if applied_changes else text, tuple(applied_changes), tuple(refused))


def is_full(text: str, share: float = 1.0) -> bool:
    """Whether the text has reached its limits, or ``share`` of them."""
    return len(facts_of(text)) >= MAX_FACTS * share or len(text) >= MAX_TEXT_CHARS * share


def _refusal(change: FactChange, new: str, lines: list[str]) -> Refusal | None:
    if not new and (change.new or not change.old):
        return "empty"
    if change.old and _index_of(change.old, lines) is None:
        return "unknown"
    if new and new != change.old and _index_of(new, lines) is not None:
        return "known"
    text = "".join(lines)
    grows = len(text) + len(BULLET + new) + 1 - len(change.old) > MAX_TEXT_CHARS
    if new and ((not change.old and is_full(text)) or (grows and len(new) > len(change.old))):
        return "full"
    return "known" if new and new == change.old else None


def _index_of(fact: str, lines: list[str]) -> int | None:
    return next((at for at, line in enumerate(lines) if _fact(line) == fact), None)


def _fact(line: str) -> str:
    stripped = line.strip()
    return stripped[len(BULLET) :].strip() if stripped.startswith((BULLET, "* ")) else ""
