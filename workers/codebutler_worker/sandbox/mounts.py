"""What a container's mounts have to be, and whether they are.

The daemon takes paths, and follows links in them: between our look and its mount somebody may have put something else
into the place of one. So what is mounted is compared with what was looked at, before anything starts there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.programs import RUNNER
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.destinations import UnsafePathError, status_beneath
from codebutler_worker.sandbox.docker_argv import Bind

TMPFS = "--tmpfs="
# For `docker exec`: whatever image has a shell has these. The places follow as arguments. The first process is a shell
# for a moment; of one that stays readable nothing is said.
ASK = """
for i in 1 2 3 4 5 6 7 8 9; do [ -r /proc/1/environ ] || break; sleep 0.3; done
[ -r /proc/1/environ ] || { cat /proc/self/mountinfo && echo && stat -c "%d %i" -- "$@"; }
"""
OUTDATED = f"the image {RUNNER} is of an older version: run `codebutler sandbox build` again"
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One mount: ``identity`` is (device, inode) of what shows there; None = an empty file system of its own."""

    place: Path
    read_only: bool
    identity: tuple[int, int] | None


def look(options: Sequence[str | Bind]) -> tuple[Wanted, ...]:
    """What the mounts among the options of `docker run` are now.

    Raises SandboxUnavailableError if one goes through a link or is gone.
    """
    return tuple(
        Wanted(option.place, option.read_only, _identity(option.source))
        if isinstance(option, Bind)
        else _empty(option)
        for option in options
        if isinstance(option, Bind) or option.startswith(TMPFS)
    )


def question(wanted: Sequence[Wanted]) -> tuple[str, ...]:
    """The command to run in the container, whose output ``mismatch`` reads. Pure."""
    return ("/bin/sh", "-c", ASK, "sh", *(str(one.place) for one in wanted if one.identity))


def mismatch(wanted: Sequence[Wanted], answer: str, *, identities: bool = sys.platform == "linux") -> str:
    """One line about the first mount that is not as wanted; "" if all are. Pure.

    ``identities``: whether the container's kernel is ours, so that its devices and inodes are, too.
    """
    if not answer:  # a program could write into the first process's memory, and so outlive its turn
        return OUTDATED
    table, _, seen = answer.partition("\n\n")
    found = _table(table)
    shown = iter(seen.splitlines())
    for one in wanted:
        options, kind = found.get(str(one.place), ("", ""))
        if not kind or (one.read_only and "ro" not in options.split(",")):
            return f"{one.place} is not protected in the container"
        if one.identity is None:
            if kind != "tmpfs":
                return f"{one.place} is not hidden in the container"
        elif next(shown, "") != f"{one.identity[0]} {one.identity[1]}" and identities:
            return f"{one.place} is something else in the container than here"
    return ""


def _table(text: str) -> dict[str, tuple[str, str]]:
    """Mount point -> (options, file system) of what is on top there: proc_pid_mountinfo(5)."""
    table = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 5 and after:
            # Space, tab, newline and backslash come as octal numbers.
            place = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
            table[place] = (fields[5], after.split(" ")[0])
    return table


def _identity(source: Path) -> tuple[int, int]:
    try:
        found = status_beneath(Path("/"), str(source).lstrip("/"))
    except UnsafePathError:
        raise SandboxUnavailableError(
            f"{source} goes through a symbolic link: name its target instead"
        ) from None
    if found is None:
        raise SandboxUnavailableError(f"{source} is gone: look where it was moved, and put it back")
    return found.st_dev, found.st_ino


def _empty(option: str) -> Wanted:
    place, _, settings = option.removeprefix(TMPFS).rpartition(":")
    return Wanted(Path(place), "ro" in settings.split(","), None)
