"""Tools that look at files: read_files, list_files, code_search.

Paths are checked outside the sandbox; the reading happens inside.
"""

from __future__ import annotations

import codecs
from typing import Annotated

from msgspec import Meta, Struct

from codebutler_worker.tools.confined import check_readable, is_directory, relative_path
from codebutler_worker.tools.programs import clip_line
from codebutler_worker.tools.tool import Arguments, CallDescription, Context, Result, Tool, ToolError

LIMIT_S = 30.0

# A file's bytes as text, and back, without changing any bytes of unchanged text.

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
LATIN = "latin-1"


class Encoding(Struct, frozen=True):
    """The encoding of a text: ``name`` is Python's name, ``mark`` the byte order mark before the text."""

    name: str = "utf-8"
    mark: bytes = b""

    def __str__(self) -> str:
        return f"{self.name} with a byte order mark" if self.mark else self.name

    def encode(self, text: str) -> bytes:
        """The bytes. Raises ToolError for a character that the encoding lacks."""
        try:
            return self.mark + text.encode(self.name)
        except UnicodeEncodeError as error:
            char = error.object[error.start]
            raise ToolError(
                f"the file is {self.name}, which has no {char!r}: do without it, or convert the file first"
            ) from None


class DecodedText(Struct, frozen=True):
    """A text and its encoding."""

    text: str
    encoding: Encoding = Encoding()


def decode(data: bytes) -> DecodedText:
    """UTF-8, or UTF-16 with a byte order mark, else Latin-1. Raises ToolError if the data is not text."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            try:
                return _text(data[len(mark) :].decode(name), Encoding(name, mark))
            except UnicodeDecodeError:
                break
    try:
        return _text(data.decode(), Encoding())
    except UnicodeDecodeError:
        return _text(data.decode(LATIN), Encoding(LATIN))


def _text(text: str, encoding: Encoding) -> DecodedText:
    if "\0" in text:
        raise ToolError("not a text file")
    return DecodedText(text, encoding)


END = "."
READ = f'cat -- "$1" || exit 1; printf {END}'
"""Argument: the file. The marker printed last shows where it ends, with or without a newline."""


async def read_text(context: Context, path: str, limit_bytes: int) -> DecodedText:
    """The text of a file of the repository. Raises ToolError, also if it is too large or not text."""
    found = check_readable(context.workdir, path, limit_bytes)
    ran = await context.programs.run(
        ("/bin/sh", "-c", READ, "read", f"./{found}"), limit_bytes=limit_bytes + 4096, limit_s=LIMIT_S
    )
    if ran.exit_code != 0 or ran.truncated:
        words = " ".join(ran.output.split())[-200:]
        raise ToolError(f"{path}: cannot be read: {ran.note or words or 'no reason given'}")
    try:
        return decode(ran.data.removesuffix(END.encode()))
    except ToolError as error:
        raise ToolError(f"{path}: {error}") from None


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
    lines: Annotated[
        int, Meta(ge=1, le=MAX_LINES, description="The number of lines to read from each file.")
    ] = MAX_LINES


async def _read(context: Context, args: ReadFilesArguments) -> Result:
    """An unreadable file is reported in its place; the others are still shown."""
    parts, failed, cut = [], 0, False
    remaining_chars = MAX_CHARS
    for path in args.paths:
        try:
            read = await read_text(context, path, MAX_FILE_BYTES)
        except ToolError as error:
            failed += 1
            parts.append(str(error))
            continue
        numbered_lines, shortened = number_lines(read.text, args.first_line, args.lines, remaining_chars)
        cut = cut or shortened
        remaining_chars -= len(numbered_lines)
        encoding_note = f" ({read.encoding})" if read.encoding != Encoding() else ""
        parts.append(f"=== {path}{encoding_note}\n{numbered_lines}")
    return Result("\n".join(parts), ok=failed < len(args.paths), truncated=cut)


def number_lines(text: str, first_line: int, count: int, limit_chars: int) -> tuple[str, bool]:
    """The lines with their numbers, and whether some were left out. Pure."""
    # Like editors and grep: only a newline ends a line.
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    entries: list[str] = []
    size, long = 0, False
    for number, line in enumerate(lines[first_line - 1 : first_line - 1 + count], first_line):
        entry = f"{number}\t{clip_line(line, MAX_LINE_CHARS)}"
        long = long or len(line) > MAX_LINE_CHARS
        size += len(entry) + 1
        if size > limit_chars:
            break
        entries.append(entry)
    last = first_line - 1 + len(entries)
    if first_line > len(lines):
        return f"(the file has {len(lines)} lines)" if lines else "(the file is empty)", False
    if last < len(lines):
        entries.append(f"(lines {first_line} to {last} of {len(lines)})")
    return "\n".join(entries), long or last < len(lines) or first_line > 1


READ_FILES = Tool(
    "read_files",
    "Read text files of the repository. Each line is shown with its number. "
    "For a long file read a part: first_line and lines.",
    "read",
    ReadFilesArguments,
    lambda args: CallDescription(", ".join(args.paths), "Read", {"file_path": ", ".join(args.paths)}),
    _read,
)


LIST_BYTES = 2**20
LIST = """
exec 2>/dev/null
if command -v rg >/dev/null; then
  exec rg --no-config --no-require-git --files --hidden --glob '!.git' --glob '!.codebutler' -- "$1"
fi
if git rev-parse --is-inside-work-tree >/dev/null; then
  exec git ls-files --cached --others --exclude-standard --deduplicate -- "$1" ':(exclude,top).codebutler'
fi
find "$1" \\( -name .git -o -name .codebutler -o -name node_modules -o -name .venv -o -name __pycache__ \\) -prune \\
  -o -type f -print
"""


class _ListFiles(Arguments, frozen=True):
    path: Annotated[str, Meta(description="A directory, relative to the repository.")] = "."
    most: Annotated[int, Meta(ge=1, le=2000, description="The maximum number of files.")] = 500


async def _list(context: Context, args: _ListFiles) -> Result:
    found = relative_path(context.workdir, args.path)
    if not is_directory(context.workdir, args.path):
        raise ToolError(f"{args.path}: a file, not a directory")
    target = "." if found == "." else f"./{found}"
    ran = await context.programs.run(
        ("/bin/sh", "-c", LIST, "list", target), limit_bytes=LIST_BYTES, limit_s=LIMIT_S
    )
    if ran.exit_code != 0 and not ran.output.strip():
        return Result("(no files)")
    files = sorted({line.removeprefix("./") for line in ran.output.split("\n") if line})
    listed = files[: args.most]
    more = len(files) - len(listed)
    note = f"\n… and {more}{' or more' if ran.truncated else ''} more files" if more or ran.truncated else ""
    return Result("\n".join(listed) + note, truncated=bool(note))


LIST_FILES = Tool(
    "list_files",
    "List the files below a directory of the repository; what .gitignore names is left out.",
    "read",
    _ListFiles,
    lambda args: CallDescription(args.path, "List", {"path": args.path}),
    _list,
)


SEARCH_BYTES = 512 * 2**10
LINE_CHARS = 300
SEARCH = """
pattern=$1 target=$2 kind=$3 case=$4 glob=$5
[ -r "$target" ] || { echo "$target: cannot be read"; exit 2; }
# An expression that cannot be understood fails without any files too.
understood() {
  said=$("$@" /dev/null 2>&1)
  [ $? -le 1 ] || { echo "$said"; exit 2; }
}
# What cannot be opened is not worth a word.
quietly() {
  "$@" 2>/dev/null
  exit 0
}
if command -v rg >/dev/null 2>&1; then
  [ "$kind" = text ] && kind=-F || kind=-s
  [ "$case" = any ] && case=-i || case=-s
  set -- rg --no-config --no-require-git -nH --no-heading --color=never --hidden --sort=path ${glob:+--glob "$glob"} \\
    --glob '!.git' --glob '!.codebutler' "$kind" "$case" -e "$pattern" --
  understood "$@"
  quietly "$@" "$target"
fi
[ "$kind" = text ] && kind=-F || kind=-E
[ "$case" = any ] && case=-i || case=
understood grep "$kind" $case -e "$pattern" --
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  [ "$target" = . ] && where= || where="${target#./}/"
  if [ -n "$glob" ] && [ -d "$target" ]; then target=":(glob)$where**/$glob"; else target=":(literal)${target#./}"; fi
  [ "$target" = ":(literal)." ] && target=.
  quietly git --no-pager grep -nI --untracked --exclude-standard --no-color "$kind" $case -e "$pattern" \\
    -- "$target" ':(exclude,top).codebutler'
fi
for name in .git .codebutler node_modules .venv __pycache__; do set -- "$@" "--exclude-dir=$name"; done
shift 5
quietly grep -rnIH "$kind" $case ${glob:+--include="$glob"} "$@" -e "$pattern" -- "$target"
"""
"""Ripgrep, else git, else grep. They exit with 2 or more on an error, even if they found something elsewhere."""


class _CodeSearch(Arguments, frozen=True):
    pattern: Annotated[
        str, Meta(min_length=1, max_length=1000, description="The text, or a regular expression.")
    ]
    path: Annotated[str, Meta(description="Look below this directory, or in this file.")] = "."
    regex: Annotated[bool, Meta(description="`pattern` is an extended regular expression.")] = False
    any_case: Annotated[bool, Meta(description="Ignore case.")] = False
    glob: Annotated[str, Meta(max_length=200, description="Only files with names like *.py")] = ""
    most: Annotated[int, Meta(ge=1, le=500, description="The maximum number of lines.")] = 100


async def _search(context: Context, args: _CodeSearch) -> Result:
    found = relative_path(context.workdir, args.path)
    is_directory(context.workdir, args.path)
    words = (
        args.pattern,
        "." if found == "." else f"./{found}",
        "regex" if args.regex else "text",
        "any" if args.any_case else "same",
        args.glob,
    )
    ran = await context.programs.run(
        ("/bin/sh", "-c", SEARCH, "search", *words), limit_bytes=SEARCH_BYTES, limit_s=LIMIT_S
    )
    if ran.exit_code > 1:
        raise ToolError(ran.note or " ".join(ran.output.split())[:300] or "the search failed")
    lines = [line.removeprefix("./") for line in ran.output.split("\n") if line]
    if not lines:
        return Result("(nothing found)")
    more = ran.truncated or len(lines) > args.most
    note = "\n… and more: search for something rarer, or in a part of the repository" if more else ""
    listed = [clip_line(line, LINE_CHARS) for line in lines[: args.most]]
    return Result("\n".join(listed) + note, truncated=more or listed != lines[: args.most])


CODE_SEARCH = Tool(
    "code_search",
    "Find lines in the repository's files: as file:line:text. What .gitignore names is left out.",
    "read",
    _CodeSearch,
    lambda args: CallDescription(
        args.pattern + ("" if args.path == "." else f" in {args.path}"),
        "Grep",
        {"pattern": args.pattern, "path": args.path},
    ),
    _search,
)
