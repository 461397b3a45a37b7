"""Where skills are: with CodeButler, in the home, in a repository; the last one of a name counts.

Only a repository's skills that somebody vouched for are used: ``codebutler trust`` records their digest, as it does for
the repository's configuration. Nothing in a repository is read through a link.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from codebutler.config.paths import Home, RepoPaths
from codebutler.config.skills.skill import (
    FILE_NAME,
    MAX_BYTES,
    PROGRAM_NAME,
    Origin,
    Skill,
    SkillError,
    is_name,
    parse_skill,
)
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.files import PrivateDir

SKILLS = "skills"
MAX_SKILLS = 100
BUNDLED = Path(__file__).parent / "bundled"


@dataclass(frozen=True, slots=True)
class Found:
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


def find_skills(home: Home | None, repo: Path | None = None, trusted_digest: str = "") -> Found:
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
        return Found(skills, tuple(problems))
    own = _read(RepoPaths(repo).root / SKILLS, problems, follow_links=False)
    if own and _digest(own) != trusted_digest:
        return Found(skills, tuple(problems), tuple(each.name for each in own))
    _add(skills, problems, "repo", own)
    return Found(skills, tuple(problems))


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
