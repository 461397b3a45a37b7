"""Tools that change files: write_file and edit_file.

Paths are checked outside the sandbox; reading and writing happens inside.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from codebutler_worker.tools.confined import check_writable
from codebutler_worker.tools.programs import difference
from codebutler_worker.tools.reading import DecodedText, Encoding, read_text
from codebutler_worker.tools.replacing import apply_replacements, find_replacements
from codebutler_worker.tools.tool import Arguments, CallDescription, Context, Result, Tool, ToolError

MAX_CHARS = 2**20
MAX_EDITED_BYTES = 8 * 2**20
LIMIT_S = 60.0
WRITE = """
set -e
mkdir -p -- "$(dirname -- "$1")"
whole=$(mktemp)
trap 'rm -f "$whole"' EXIT
head -c "$2" > "$whole"
[ "$(wc -c < "$whole")" -eq "$2" ] || { echo "the content did not arrive whole"; exit 1; }
cat "$whole" > "$1"
"""
"""Arguments: the file, and its size in bytes. The old content is replaced only once all of the new one has arrived, and
in place: mode and links stay."""


class _WriteFile(Arguments, frozen=True):
    path: Annotated[str, Meta(min_length=1, description="A file, relative to the repository.")]
    content: Annotated[str, Meta(max_length=MAX_CHARS, description="Its whole content.")]


async def _write(context: Context, args: _WriteFile) -> Result:
    path = check_writable(context.workdir, args.path)
    try:
        before = await read_text(context, path, MAX_CHARS)
    except ToolError:
        before = DecodedText("")
    content, encoding = _in_previous_style(args.content, before)
    await _write_bytes(context, path, encoding.encode(content))
    note = f" (still {encoding})" if encoding != Encoding() else ""
    return Result(f"Wrote {path}{note}.\n{difference(path, before.text, content)}")


def _in_previous_style(content: str, before: DecodedText) -> tuple[str, Encoding]:
    """The content with the line ends of what it replaces, and in the same encoding if that can represent it."""
    content = content.encode(errors="replace").decode()
    lines = before.text.count("\n")
    if lines and before.text.count("\r\n") == lines and "\r\n" not in content:
        content = content.replace("\n", "\r\n")
    try:
        before.encoding.encode(content)
    except ToolError:
        return content, Encoding()
    return content, before.encoding


async def _write_bytes(context: Context, path: str, data: bytes) -> None:
    argv = ("/bin/sh", "-c", WRITE, "write", f"./{path}", str(len(data)))
    # Never empty: without at least one byte, stdin is not sent at all.
    ran = await context.programs.run(argv, stdin=data or b"\n", limit_s=LIMIT_S)
    if ran.exit_code != 0:
        lines = ran.output.strip().splitlines()
        raise ToolError(f"{path}: not written: {ran.note or (lines[-1] if lines else 'no reason given')}")


WRITE_FILE = Tool(
    "write_file",
    "Create a file, or replace all of it. To change a part of a file use edit_file.",
    "edit",
    _WriteFile,
    lambda args: CallDescription(args.path, "Write", {"file_path": args.path, "content": args.content}),
    _write,
)


class _EditFile(Arguments, frozen=True):
    path: Annotated[str, Meta(min_length=1, description="A file, relative to the repository.")]
    old: Annotated[str, Meta(min_length=1, description="The text as it is in the file.")]
    new: Annotated[str, Meta(description="The text that replaces it.")]
    all: Annotated[bool, Meta(description="Replace each occurrence; else there must be exactly one.")] = False


async def _edit(context: Context, args: _EditFile) -> Result:
    path = check_writable(context.workdir, args.path)
    before = await read_text(context, path, MAX_EDITED_BYTES)
    # In a thread: comparing a long text takes a while.
    after, ignored = await asyncio.to_thread(_replace, path, before.text, args)
    await _write_bytes(context, path, before.encoding.encode(after))
    note = f" (found without regard to {ignored})" if ignored else ""
    return Result(f"Changed {path}{note}.\n{difference(path, before.text, after)}")


def _replace(path: str, text: str, args: _EditFile) -> tuple[str, str]:
    replacements, ignored = find_replacements(path, text, args.old, args.new, every=args.all)
    return apply_replacements(text, replacements), ignored


def _describe(args: _EditFile) -> CallDescription:
    fields: dict[str, Any] = {"file_path": args.path, "old_string": args.old, "new_string": args.new}
    return CallDescription(args.path, "Edit", {**fields, "replace_all": True} if args.all else fields)


EDIT_FILE = Tool(
    "edit_file",
    "Replace text in a file. Copy `old` from the file, with its indentation and without line numbers; it must be "
    "there only once (give some lines around it), unless `all` is true. Shows the diff.",
    "edit",
    _EditFile,
    _describe,
    _edit,
)
