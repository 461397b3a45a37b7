"""read_files: the text of files of the repository, with line numbers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.display import clipped
from codebutler_worker.tools.encoding import Encoding
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Result, ToolError
from codebutler_worker.tools.reading import read_text

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
    """The paths are checked on this side, the reading is done behind the walls."""

    name = "read_files"
    description = (
        "Read text files of the repository. Each line is shown with its number. "
        "For a long file read a part: first_line and lines."
    )
    kind: Kind = "read"
    arguments = ReadFilesArguments

    def describe(self, args: ReadFilesArguments) -> Described:
        """See the port."""
        return Described(", ".join(args.paths), "Read", {"file_path": ", ".join(args.paths)})

    async def run(self, context: Context, args: ReadFilesArguments) -> Result:
        """See the port. A file that cannot be read is told in its place, and the others are shown."""
        shown, failed, cut = [], 0, False
        left = MAX_CHARS
        for path in args.paths:
            try:
                read = await read_text(context, path, MAX_FILE_BYTES)
            except ToolError as error:
                failed += 1
                shown.append(str(error))
                continue
            part, shortened = numbered(read.text, args.first_line, args.lines, left)
            cut = cut or shortened
            left -= len(part)
            written = f" ({read.encoding.told})" if read.encoding != Encoding() else ""
            shown.append(f"=== {path}{written}\n{part}")
        return Result("\n".join(shown), ok=failed < len(args.paths), truncated=cut)


def numbered(text: str, first_line: int, count: int, limit_chars: int) -> tuple[str, bool]:
    """The lines with their numbers, and whether some had to be left out. Pure."""
    lines = lines_of(text)
    shown: list[str] = []
    size, long = 0, False
    for number, line in enumerate(lines[first_line - 1 : first_line - 1 + count], first_line):
        entry = f"{number}\t{clipped(line, MAX_LINE_CHARS)}"
        long = long or len(line) > MAX_LINE_CHARS
        size += len(entry) + 1
        if size > limit_chars:
            break
        shown.append(entry)
    last = first_line - 1 + len(shown)
    if first_line > len(lines):
        return f"(the file has {len(lines)} lines)" if lines else "(the file is empty)", False
    if last < len(lines):
        shown.append(f"(lines {first_line} to {last} of {len(lines)})")
    return "\n".join(shown), long or last < len(lines) or first_line > 1


def lines_of(text: str) -> list[str]:
    """As editors and grep count them: nothing but a newline ends a line. Pure."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
