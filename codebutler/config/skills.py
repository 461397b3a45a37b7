"""Skills: how to do something well, written down once (``SKILL.md``) and used by name.

They come with CodeButler, from the home and from a repository; the last one of a name counts. Only a repository's
skills that somebody has trusted are used: ``codebutler trust`` records their digest, as it does for the configuration.
Nothing in a repository is read through a link. The format is that of other agents' skills, so theirs can be used as
they are; keys that mean nothing here are ignored. A ``skill.py`` beside it makes it a program.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from codebutler.config.paths import Home, RepoPaths
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.files import PrivateDir
from codebutler.text.safe_yaml import decode_yaml

SKILLS = "skills"
MAX_SKILLS = 100
BUNDLED = Path(__file__).parent / "bundled_skills"
NAME = r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$"
FILE_NAME = "SKILL.md"
PROGRAM_NAME = "skill.py"
MAX_BYTES = 64 * 1024
_FRONT = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(?P<front>.*?)^---[ \t]*\r?$\n?(?P<body>.*)\Z", re.DOTALL | re.MULTILINE
)
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
"""Controls, turns of the reading direction, and tags: whoever vouches for a skill reads it without them, an agent with
them."""
PROGRAM_TEMPLATE = '''\
"""Reads {"arguments": "…", "workdir": "…"} from stdin; writes {"text": "…"} to stdout."""

import json
import sys

given = json.load(sys.stdin)
json.dump({"text": f"You said: {given['arguments']}"}, sys.stdout)
'''


@dataclass(frozen=True, slots=True)
class FoundSkills:
    """Skills by name, and one line for each that cannot be used. ``untrusted``: the repository has some that nobody
    vouched for, and they are not among them."""

    skills: Mapping[str, Skill] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()

    def enabled(self, disabled: Iterable[str]) -> Mapping[str, Skill]:
        """Without those that are switched off."""
        return {name: skill for name, skill in self.skills.items() if name not in set(disabled)}


@dataclass(frozen=True, slots=True)
class _Files:
    name: str
    text: bytes
    program: bytes | None


def find_skills(home: Home | None, repo: Path | None = None, trusted_digest: str = "") -> FoundSkills:
    """All skills for a repository (or, without one, of this installation). Blocking; raises nothing: a skill that
    cannot be read is a problem of its own."""
    skills: dict[str, Skill] = {}
    problems: list[str] = []
    sources: list[tuple[Origin, Path]] = [("bundled", BUNDLED)]
    if home is not None:
        sources.append(("home", home.root / SKILLS))
    for origin, directory in sources:
        _add(skills, problems, origin, _read(directory, problems, follow_links=True))
    if repo is None:
        return FoundSkills(skills, tuple(problems))
    own = _read(RepoPaths(repo).root / SKILLS, problems, follow_links=False)
    if own and _digest(own) != trusted_digest:
        return FoundSkills(skills, tuple(problems), tuple(each.name for each in own))
    _add(skills, problems, "repo", own)
    return FoundSkills(skills, tuple(problems))


def skills_digest(repo: Path) -> str:
    """SHA-256 over all that a repository's skills are, "" if it has none."""
    own = _read(RepoPaths(repo).root / SKILLS, [], follow_links=False)
    return _digest(own) if own else ""


def _add(skills: dict[str, Skill], problems: list[str], origin: Origin, found: Iterable[_Files]) -> None:
    for files in found:
        try:
            skills[files.name] = parse_skill(files.text, files.name, origin, files.program)
        except SkillError as error:
            problems.append(f"{origin}: {error}")


def _read(directory: Path, problems: list[str], *, follow_links: bool) -> list[_Files]:
    try:
        names = sorted(name for name in _names(directory, follow_links=follow_links) if is_name(name))
    except OSError:
        return []
    found = []
    for name in names[:MAX_SKILLS]:
        # Each opened beneath its parent's own path: a link on the way is refused where links are not followed.
        with suppress(FileNotFoundError):
            try:
                with PrivateDir(directory / name, follow_links=follow_links) as files:
                    text = files.read(FILE_NAME, MAX_BYTES)
                    if text is not None:
                        found.append(_Files(name, text, files.read(PROGRAM_NAME, MAX_BYTES)))
            except FileNotFoundError:
                raise
            except (CodeButlerError, OSError) as error:
                problems.append(str(error))
    return found


def _names(directory: Path, *, follow_links: bool) -> list[str]:
    """The directories in it. Raises OSError, also where a link stands in the way of one that must not follow it."""
    follow = 0 if follow_links else os.O_NOFOLLOW
    parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow)
    try:
        descriptor = os.open(
            directory.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow, dir_fd=parent
        )
    finally:
        os.close(parent)
    try:
        with os.scandir(descriptor) as entries:
            return [
                entry.name
                for entry in entries
                if stat.S_ISDIR(entry.stat(follow_symlinks=follow_links).st_mode)
            ]
    finally:
        os.close(descriptor)


def _digest(found: Iterable[_Files]) -> str:
    """Of every name and content, each with its length, so that nothing can move from one into another."""
    total = hashlib.sha256()
    for files in found:
        for part in (
            files.name.encode(),
            files.text,
            b"-" if files.program is None else b"+" + files.program,
        ):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()


Origin = Literal["bundled", "home", "repo"]
"""Where a skill was found, the weakest first: a later one of the same name takes its place."""


class SkillError(CodeButlerError):
    """A skill cannot be used; one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill. ``program`` is the source of its ``skill.py``, "" if it only instructs."""

    name: str
    description: str
    instructions: str
    origin: Origin = "bundled"
    program: str = ""

    @property
    def kind(self) -> Literal["prompt", "code"]:
        """Whether it instructs or runs."""
        return "code" if self.program else "prompt"


class _Front(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(pattern=NAME)]
    description: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


def parse_skill(data: bytes, name: str, origin: Origin, program: bytes | None = None) -> Skill:
    """The skill in the directory ``name``. Raises SkillError with what is wrong with its file."""
    source = f"{name}/{FILE_NAME}"
    found = _FRONT.match(_text(data, source))
    if found is None:
        raise SkillError(f"{source}: begin it with a front matter: ---, name, description, ---")
    try:
        front: _Front = decode_yaml(found["front"], _Front)
    except msgspec.DecodeError as error:
        raise SkillError(f"{source}: {' '.join(str(error).split())[:200]}") from None
    if front.name != name:
        raise SkillError(f"{source}: its name is {front.name}, but its directory is called {name}")
    body = found["body"].strip()
    if not body and program is None:
        raise SkillError(f"{source}: write the instructions below the front matter")
    code = "" if program is None else _text(program, f"{name}/{PROGRAM_NAME}")
    return Skill(name, " ".join(front.description.split()), body, origin, code)


def is_name(name: str) -> bool:
    """Whether a skill may be called so."""
    return re.fullmatch(NAME, name) is not None


def template(name: str, description: str) -> str:
    """A new ``SKILL.md`` to fill in."""
    told = description.replace("\n", " ").strip() or "What it does, and when to use it."
    quoted = msgspec.json.encode(told).decode()  # JSON strings are YAML strings
    return f"---\nname: {name}\ndescription: {quoted}\n---\n\nSay step by step what the agent is to do.\n"


def _text(data: bytes, source: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SkillError(f"{source}: not valid UTF-8: save the file as UTF-8") from None
    if found := _UNSEEN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise SkillError(
            f"{source}: line {line} holds an invisible character (U+{ord(found[0]):04X}): remove it"
        )
    return text
