"""`codebutler logs` and `audit`: the end of the log, and new lines; what was executed or refused."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, TextIO

import msgspec
import typer

from codebutler.cli.context import home, known_repositories
from codebutler.cli.output import notice, print_json, print_line, print_table
from codebutler.config.registry import Registry, find
from codebutler.domain.errors import CodeButlerError
from codebutler.observe.chain import Break, head_of, verify

POLL_INTERVAL_S = 0.25
_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?P<tag>[A-Z]{3})  (?:\[(?P<repo>[^\]\s]+)\] )?(?P<text>.*)"
)
Filter = Callable[[str], bool]


def logs(
    repo: Annotated[
        str | None, typer.Argument(help="Only this repository's lines.", autocompletion=known_repositories)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing as lines are added.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="Number of lines from the end.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; not with --follow.")] = False,
) -> None:
    """Show the end of the supervisor's log, of all repositories or of one."""
    home_dir = home()
    matches: Filter = _any_line
    if repo is not None:
        entries = Registry(home_dir).load()
        find(entries, repo)
        matches = line_filter(repo, alone=len(entries) == 1)
    if not home_dir.log_file.exists() and not follow:
        raise CodeButlerError(f"no log yet at {home_dir.log_file}: start with `codebutler supervise`")
    with LogReader(home_dir.log_file) as log:
        shown = list(deque(filter(matches, log.existing_lines()), maxlen=min(lines, sys.maxsize)))
        if as_json:
            print_json([parse_line(line) for line in shown])
            return
        for line in shown:
            print_line(line)
        if follow:
            if not home_dir.log_file.exists():
                notice(
                    f"no log yet at {home_dir.log_file}: waiting for `codebutler supervise`. Press Ctrl-C to stop."
                )
            sys.stdout.flush()
            for line in filter(matches, log.new_lines(time.sleep)):
                print_line(line)
                sys.stdout.flush()


class LogReader:
    """The lines of a log file, existing and new ones, through rotation and truncation."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> LogReader:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def existing_lines(self) -> Iterator[str]:
        """The content of the file; "" if it is missing."""
        for line in self._file or ():
            yield line.rstrip("\n")

    def new_lines(self, sleep: Callable[[float], None]) -> Iterator[str]:
        """New lines, for ever; checks every ``POLL_INTERVAL_S``."""
        partial = ""
        while True:
            if chunk := self._file.read() if self._file else "":
                *complete, partial = (partial + chunk).split("\n")
                yield from complete
            elif self._was_replaced():
                yield from self._switch_file(partial)
                partial = ""
            else:
                sleep(POLL_INTERVAL_S)

    def _switch_file(self, partial: str) -> list[str]:
        """Switch to the new file; returns what was written to the old one after the last check."""
        rest = partial + (self._file.read() if self._file else "")
        self._close()
        self._open()
        return rest.splitlines()

    def _open(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._file = self._path.open(encoding="utf-8", errors="replace", newline="\n")

    def _close(self) -> None:
        if self._file:
            self._file.close()
        self._file = None

    def _was_replaced(self) -> bool:
        """Whether the path is another file by now, or ours became shorter than what was read."""
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        if self._file is None:
            return True
        ours = os.fstat(self._file.fileno())
        return (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino) or now.st_size < self._file.tell()


def line_filter(repo: str, *, alone: bool) -> Filter:
    """Whether a line is about ``repo``; lines without a name are, if it is the only one registered."""

    def belongs(line: str) -> bool:
        match = _LINE.fullmatch(line)
        name = match["repo"] if match else None
        return name == repo or (alone and name is None)

    return belongs


def parse_line(line: str) -> dict[str, str | None]:
    """A log line as an object; a line in another format is all text."""
    match = _LINE.fullmatch(line)
    return match.groupdict() if match else {"time": None, "tag": None, "repo": None, "text": line}


def _any_line(_line: str) -> bool:
    return True


def audit(
    action: Annotated[
        Literal["show", "verify"], typer.Argument(help="Show its end, or verify the chain.")
    ] = "show",
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="Number of lines from the end.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the end of the audit log, or verify that it is complete and unchanged."""
    path = home().audit
    if not path.is_file():
        if head_of(path):
            raise CodeButlerError(f"the audit log {path} was removed")
        raise CodeButlerError(f"there is no audit log at {path} yet: `codebutler supervise` creates it")
    if action == "verify":
        broken = verify(path)
        if broken is not None:
            raise CodeButlerError(f"{broken.path}: {_break_text(broken)}")
        print_line("Audit log verified.")
        return
    with path.open("rb") as file:
        last = [
            row
            for raw in deque(file, maxlen=min(lines, sys.maxsize))
            if (row := _decode_row(raw)) is not None
        ]
    if as_json:
        print_json(last)
    else:
        print_table(("TIME", "USER", "KIND", "DECISION", "TEXT"), [_audit_cells(row) for row in last])


def _break_text(broken: Break) -> str:
    if broken.cut:
        return (
            f"lines were removed or changed at line {broken.line}: the log used to contain other lines there"
        )
    return f"line {broken.line} does not match the one before: it, or an earlier line, was changed, removed or inserted"


def _decode_row(raw: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None  # torn by a crash; `verify` speaks of it


def _audit_cells(row: dict[str, Any]) -> tuple[str, ...]:
    text = " ".join(str(row.get("text", "")).split())
    return (
        str(row.get("time", ""))[:19],
        *(str(row.get(key, "")) for key in ("user", "kind", "decision")),
        text[:80],
    )
