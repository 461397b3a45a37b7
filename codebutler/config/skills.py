"""Skills: instructions for a task, written once (``SKILL.md``) and used by name.

They come with CodeButler, from the home and from a repository; the last one of a name counts. Only a
repository's trusted skills are used: ``codebutler trust`` records their digest, as for the configuration. No
link in a repository is followed. The format is that of other agents' skills, so theirs work unchanged;
unknown keys are ignored. A ``skill.py`` beside it makes it a program.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Struct, field

from codebutler.config.paths import Home, RepoPaths
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.files import PrivateDir
from codebutler.text.yaml import decode_yaml

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
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""Control characters, changes of the reading direction, and tags: a person who trusts a skill does not see
them, an agent does."""
PROGRAM_TEMPLATE = '''\
"""Reads {"arguments": "…", "workdir": "…"} from stdin; writes {"text": "…"} to stdout."""

import json
import sys

given = json.load(sys.stdin)
json.dump({"text": f"You said: {given['arguments']}"}, sys.stdout)
'''
Origin = Literal["bundled", "home", "repo"]
"""Where a skill was found, lowest precedence first: a later one replaces one of the same name."""


class FoundSkills(Struct, frozen=True):
    """Skills by name, and one line for each that cannot be used. ``untrusted``: the repository's untrusted
    ones, which are not included."""

    skills: Mapping[str, Skill] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()

    def enabled(self, disabled: Iterable[str]) -> Mapping[str, Skill]:
        """The skills without the disabled ones."""
        return {name: skill for name, skill in self.skills.items() if name not in set(disabled)}


class _SkillFiles(Struct, frozen=True):
    name: str
    text: bytes
    program: bytes | None


def find_skills(home: Home | None, repo: Path | None = None, trusted_digest: str = "") -> FoundSkills:
    """All skills for a repository (or, without one, of this installation). Blocking; raises nothing: an
    unreadable skill becomes a problem in the result."""
    skills: dict[str, Skill] = {}
    problems: list[str] = []
    sources: list[tuple[Origin, Path]] = [("bundled", BUNDLED)]
    if home is not None:
        sources.append(("home", home.root / SKILLS))
    for origin, directory in sources:
        _add_parsed(skills, problems, origin, _read(directory, problems, follow_links=True))
    if repo is None:
        return FoundSkills(skills, tuple(problems))
    own = _read(RepoPaths(repo).root / SKILLS, problems, follow_links=False)
    if own and _digest(own) != trusted_digest:
        return FoundSkills(skills, tuple(problems), tuple(each.name for each in own))
    _add_parsed(skills, problems, "repo", own)
    return FoundSkills(skills, tuple(problems))


def skills_digest(repo: Path) -> str:
    """SHA-256 over all of a repository's skills, "" if it has none."""
    own = _read(RepoPaths(repo).root / SKILLS, [], follow_links=False)
    return _digest(own) if own else ""


def _add_parsed(
    skills: dict[str, Skill], problems: list[str], origin: Origin, found: Iterable[_SkillFiles]
) -> None:
    for files in found:
        try:
            skills[files.name] = parse_skill(files.text, files.name, origin, files.program)
        except SkillError as error:
            problems.append(f"{origin}: {error}")


def _read(directory: Path, problems: list[str], *, follow_links: bool) -> list[_SkillFiles]:
    try:
        names = sorted(name for name in _directories(directory, follow_links=follow_links) if is_name(name))
    except OSError:
        return []
    found = []
    for name in names[:MAX_SKILLS]:
        # Each is opened relative to its parent: where links are not followed, one on the way is refused.
        with suppress(FileNotFoundError):
            try:
                with PrivateDir(directory / name, follow_links=follow_links) as files:
                    text = files.read(FILE_NAME, MAX_BYTES)
                    if text is not None:
                        found.append(_SkillFiles(name, text, files.read(PROGRAM_NAME, MAX_BYTES)))
            except FileNotFoundError:
                raise
            except (CodeButlerError, OSError) as error:
                problems.append(str(error))
    return found


def _directories(directory: Path, *, follow_links: bool) -> list[str]:
    """Its directories. Raises OSError, also for a link if links are not followed."""
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
            return [entry.name for entry in entries if _is_directory(entry, follow_links=follow_links)]
    finally:
        os.close(descriptor)


def _is_directory(entry: os.DirEntry[str], *, follow_links: bool) -> bool:
    with suppress(OSError):  # a link to nowhere
        return entry.is_dir(follow_symlinks=follow_links)
    return False


def _digest(found: Iterable[_SkillFiles]) -> str:
    """Hashes every name and content with its length, so that nothing can move from one into another."""
    total = hashlib.sha256()
    for files in found:
        for part in (
            files.name.encode(),
            files.text,
            b"-" if files.program is None else b"+" + files.program,
        ):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()


class SkillError(CodeButlerError):
    """A skill cannot be used; one line that says what to do."""


class Skill(Struct, frozen=True):
    """One skill. ``program`` is the source of its ``skill.py``, "" if it has only instructions."""

    name: str
    description: str
    instructions: str
    origin: Origin = "bundled"
    program: str = ""

    @property
    def kind(self) -> Literal["prompt", "code"]:
        """Whether it is instructions or a program."""
        return "code" if self.program else "prompt"


class _Front(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(pattern=NAME)]
    description: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


def parse_skill(data: bytes, name: str, origin: Origin, program: bytes | None = None) -> Skill:
    """The skill in the directory ``name``. Raises SkillError with what is wrong with its file."""
    source = f"{name}/{FILE_NAME}"
    found = _FRONT.match(_text(data, source))
    if found is None:
        raise SkillError(f"{source}: start it with front matter: ---, name, description, ---")
    try:
        front: _Front = decode_yaml(found["front"], _Front)
    except msgspec.DecodeError as error:
        raise SkillError(f"{source}: {' '.join(str(error).split())[:200]}") from None
    if front.name != name:
        raise SkillError(f"{source}: its name is {front.name}, but its directory is called {name}")
    body = found["body"].strip()
    if not body and program is None:
        raise SkillError(f"{source}: add the instructions below the front matter")
    code = "" if program is None else _text(program, f"{name}/{PROGRAM_NAME}")
    return Skill(name, " ".join(front.description.split()), body, origin, code)


def is_name(name: str) -> bool:
    """Whether this is a valid name of a skill."""
    return re.fullmatch(NAME, name) is not None


def template(name: str, description: str) -> str:
    """A template for a new ``SKILL.md``."""
    text = description.replace("\n", " ").strip() or "What it does, and when to use it."
    quoted = msgspec.json.encode(text).decode()  # JSON strings are YAML strings
    return (
        f"---\nname: {name}\ndescription: {quoted}\n---\n\nDescribe step by step what the agent should do.\n"
    )


def _text(data: bytes, source: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SkillError(f"{source}: not valid UTF-8: save the file as UTF-8") from None
    if found := _INVISIBLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise SkillError(
            f"{source}: line {line} contains an invisible character (U+{ord(found[0]):04X}): remove it"
        )
    return text
