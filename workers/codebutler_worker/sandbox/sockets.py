"""Unix sockets in a checkout that programs outside listen on: a database's, a development server's, git's own daemon's.

Who may write in a directory may talk to what listens there, whatever network there is. What a program makes in a
network of its own is not listed here, so agents' own servers are theirs. unix(7), proc_pid_net(5). Blocking.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from codebutler.errors import SandboxUnavailableError
from codebutler_worker.sandbox.destinations import UnsafePathError, status_beneath

LISTED = Path("/proc/net/unix")
PATH_FIELD = 7


def names(table: str) -> Iterator[str]:
    """The names of sockets that are files, as they were given. Pure."""
    for line in table.splitlines()[1:]:
        fields = line.split(maxsplit=PATH_FIELD)
        if len(fields) > PATH_FIELD and not fields[PATH_FIELD].startswith("@"):
            yield fields[PATH_FIELD]


def sockets_in(
    areas: Collection[Path], shown: Collection[Path], hidden: Path, listed: Path = LISTED
) -> tuple[Path, ...]:
    """Those below ``areas``, but for what is ``hidden`` and not ``shown``.

    Raises SandboxUnavailableError for one that has a second name, which nobody can find.
    """
    try:
        table = listed.read_text(errors="surrogateescape")
    except OSError:
        return ()  # not Linux
    named = {*names(table)}
    found = {*_absolute(name for name in named if name.startswith("/"))}
    if relative := [name for name in named if not name.startswith("/")]:
        places = {place for place in (*areas, *_working_directories()) if _area(place, areas)}
        found |= {*_absolute(f"{place}/{name}" for place in places for name in relative)}
    return tuple(
        sorted(
            path
            for path in found
            if (area := _area(path, areas)) is not None
            and (not path.is_relative_to(hidden) or _area(path, shown))
            and _is_socket(area, path)
        )
    )


def _absolute(every: Iterator[str]) -> Iterator[Path]:
    """Without links on the way."""
    real: dict[str, str] = {}
    for name in every:
        directory, last = os.path.split(os.path.normpath(name))
        if directory not in real:
            real[directory] = os.path.realpath(directory)
        yield Path(real[directory], last)


def _area(path: Path, areas: Collection[Path]) -> Path | None:
    return next((area for area in areas if path.is_relative_to(area)), None)


def _working_directories() -> Iterator[Path]:
    """Of every process: a name without a slash is relative to that of whoever gave it."""
    for process in os.scandir("/proc"):
        if process.name.isdecimal():
            try:
                yield Path(process.path, "cwd").readlink()
            except OSError:
                continue


def _is_socket(area: Path, path: Path) -> bool:
    try:
        found = status_beneath(area, str(path.relative_to(area)))
    except (UnsafePathError, NotADirectoryError):
        return False
    if found is None or not stat.S_ISSOCK(found.st_mode):
        return False
    if found.st_nlink > 1:
        raise SandboxUnavailableError(
            f"{path} is a socket of a program outside, and has another name as well (`find -samefile`): remove that one"
        )
    return True
