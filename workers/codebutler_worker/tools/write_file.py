"""write_file: the whole content of a file."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.confined import writable
from codebutler_worker.tools.difference import difference
from codebutler_worker.tools.encoding import Decoded, Encoding
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Result, ToolError
from codebutler_worker.tools.reading import read_text

MAX_CHARS = 2**20
LIMIT_S = 60.0
SCRIPT = """
set -e
mkdir -p -- "$(dirname -- "$1")"
whole=$(mktemp)
trap 'rm -f "$whole"' EXIT
head -c "$2" > "$whole"
[ "$(wc -c < "$whole")" -eq "$2" ] || { echo "the content did not arrive whole"; exit 1; }
cat "$whole" > "$1"
"""
"""Arguments: the file, and how many bytes it has. What is there is replaced only once all of it has arrived, in
place: its mode and its links stay."""


class WriteFileArguments(Arguments, frozen=True):
    """What to write where."""

    path: Annotated[str, Meta(min_length=1, description="A file, relative to the repository.")]
    content: Annotated[str, Meta(max_length=MAX_CHARS, description="Its whole content.")]


class WriteFile:
    """The path is checked on this side, the writing is done behind the walls."""

    name = "write_file"
    description = "Create a file, or replace all of it. To change a part of a file use edit_file."
    kind: Kind = "edit"
    arguments = WriteFileArguments

    def describe(self, args: WriteFileArguments) -> Described:
        """See the port."""
        return Described(args.path, "Write", {"file_path": args.path, "content": args.content})

    async def run(self, context: Context, args: WriteFileArguments) -> Result:
        """See the port. What was there is replaced; its result shows the difference."""
        path = writable(context.workdir, args.path)
        try:
            before = await read_text(context, path, MAX_CHARS)
        except ToolError:
            before = Decoded("")
        content, encoding = _as_before(args.content, before)
        await put(context, path, encoding.encoded(content))
        kept = f" (still {encoding.told})" if encoding != Encoding() else ""
        return Result(f"Wrote {path}{kept}.\n{difference(path, before.text, content)}")


def _as_before(content: str, before: Decoded) -> tuple[str, Encoding]:
    """The content with the line ends of what it replaces, and how it is written: as that was, where it can be."""
    content = content.encode(errors="replace").decode()
    lines = before.text.count("\n")
    if lines and before.text.count("\r\n") == lines and "\r\n" not in content:
        content = content.replace("\n", "\r\n")
    try:
        before.encoding.encoded(content)
    except ToolError:
        return content, Encoding()
    return content, before.encoding


async def put(context: Context, path: str, data: bytes) -> None:
    """Make ``data`` all there is in the file. Raises ToolError."""
    argv = ("/bin/sh", "-c", SCRIPT, "write", f"./{path}", str(len(data)))
    # Never nothing: without a byte on its stdin nothing is sent at all.
    ran = await context.programs.run(argv, stdin=data or b"\n", limit_s=LIMIT_S)
    if ran.exit_code != 0:
        lines = ran.output.strip().splitlines()
        raise ToolError(f"{path}: not written: {ran.note or (lines[-1] if lines else 'no reason given')}")
