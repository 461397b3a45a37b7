"""read_files: the text of files of the repository, with line numbers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.confined import read_text
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Result, ToolError

MAX_FILE_BYTES = 8 * 2**20
MAX_LINES = 2000
MAX_CHARS = 60_000
MAX_LINE_CHARS = 2000


class ReadFilesArguments(Arguments, frozen=True):
    """What to read."""

    paths: Annotated[
        list[Annotated[str, Meta(min_length=1)]],
        Meta(min_length=1, max_length=20, description="Files, relative to the repository."),
    ]
    first_line: Annotated[int, Meta(ge=1, description="Begin at this line.")] = 1
    lines: Annotated[int, Meta(ge=1, le=MAX_LINES, description="Read at most so many lines of each.")] = (
        MAX_LINES
    )


class ReadFiles:
    """Reads on this side of the walls, on descriptors that cannot leave the working directory."""

    name = "read_files"
    description = (
        "Read text files of the repository. Each line is shown with its number. "
        "For a long file read a part: first_line and lines."
    )
    kind: Kind = "read"
    arguments = ReadFilesArguments

    def describe(self, args: ReadFilesArguments) -> Described:
        return Described(", ".join(args.paths), "Read", {"file_path": ", ".join(args.paths)})

    async def run(self, context: Context, args: ReadFilesArguments) -> Result:
        return await asyncio.to_thread(read_all, context.workdir, args)


def read_all(workdir: Path, args: ReadFilesArguments) -> Result:
    """Every file, one after the other, or why it cannot be read. Blocking."""
    shown, failed, cut = [], 0, False
    left = MAX_CHARS
    for path in args.paths:
        try:
            text, shortened = numbered(
                read_text(workdir, path, MAX_FILE_BYTES), args.first_line, args.lines, left
            )
        except ToolError as error:
            failed += 1
            shown.append(str(error))
            continue
        cut = cut or shortened
        left -= len(text)
        shown.append(f"=== {path}\n{text}")
    return Result("\n".join(shown), ok=failed < len(args.paths), truncated=cut)


def numbered(text: str, first_line: int, count: int, limit_chars: int) -> tuple[str, bool]:
    """The lines with their numbers, and whether some had to be left out. Pure."""
    lines = text.splitlines()
    shown: list[str] = []
    size = 0
    for number, line in enumerate(lines[first_line - 1 : first_line - 1 + count], first_line):
        entry = f"{number}\t{line[:MAX_LINE_CHARS]}"
        size += len(entry) + 1
        if size > limit_chars:
            break
        shown.append(entry)
    last = first_line - 1 + len(shown)
    if first_line > len(lines):
        return f"(the file has {len(lines)} lines)", False
    if last < len(lines):
        shown.append(f"(lines {first_line} to {last} of {len(lines)})")
    return "\n".join(shown), last < len(lines) or first_line > 1
