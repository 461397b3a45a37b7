"""``codebutler logs``: the end of the log, and what is added to it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, TextIO

import typer

from codebutler.cli.output import print_json, say
from codebutler.cli.surroundings import home
from codebutler.config.registry import Registry, find
from codebutler.errors import CodeButlerError

POLL_INTERVAL_S = 0.25
_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?P<tag>[A-Z]{3})  (?:\[(?P<repo>[^\]\s]+)\] )?(?P<text>.*)"
)
Filter = Callable[[str], bool]


def run(
    repo: Annotated[str | None, typer.Argument(help="Only this repository's lines.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are added.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many lines from the end.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, without --follow.")] = False,
) -> None:
    """Show the end of the supervisor's log, of all repositories or of one."""
    where = home()
    wanted: Filter = _everything
    if repo is not None:
        entries = Registry(where).load()
        find(entries, repo)
        wanted = line_filter(repo, alone=len(entries) == 1)
    if not where.log_file.exists() and not follow:
        raise CodeButlerError(f"no log yet at {where.log_file}: start with `codebutler supervise`")
    file = _open(where.log_file)
    shown = tail(file, lines, wanted) if file else []
    if as_json:
        print_json([parsed(line) for line in shown])
        return
    for line in shown:
        say(line)
    if follow:
        for line in added(where.log_file, file, time.sleep):
            if wanted(line):
                say(line)
                sys.stdout.flush()


def line_filter(repo: str, *, alone: bool) -> Filter:
    """Whether a line is of ``repo``; lines without a name are, where it is the only one registered."""

    def belongs(line: str) -> bool:
        match = _LINE.fullmatch(line)
        name = match["repo"] if match else None
        return name == repo or (alone and name is None)

    return belongs


def parsed(line: str) -> dict[str, str | None]:
    """A log line as an object; a line of another shape is all text."""
    match = _LINE.fullmatch(line)
    return match.groupdict() if match else {"time": None, "tag": None, "repo": None, "text": line}


def tail(file: TextIO, count: int, wanted: Filter) -> list[str]:
    """The last ``count`` wanted lines; the file is read to its end."""
    return list(deque((text for line in file if wanted(text := line.rstrip("\n"))), maxlen=count))


def added(path: Path, file: TextIO | None, sleep: Callable[[float], None]) -> Iterator[str]:
    """Lines as they are added after where ``file`` stands, for ever, through rotation and truncation."""
    partial = ""
    while True:
        chunk = file.read() if file else ""
        if chunk:
            *complete, partial = (partial + chunk).split("\n")
            yield from complete
            continue
        if file is None or _was_replaced(file, path):
            if file:
                file.close()
            file = _open(path)
            partial = ""
            if file:
                continue
        sleep(POLL_INTERVAL_S)


def _everything(_line: str) -> bool:
    return True


def _open(path: Path) -> TextIO | None:
    try:
        return path.open(encoding="utf-8", errors="replace", newline="\n")
    except FileNotFoundError:
        return None


def _was_replaced(file: TextIO, path: Path) -> bool:
    """Whether the path now names another file, or this one became shorter than what was read."""
    ours = os.fstat(file.fileno())
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino) or now.st_size < file.tell()
