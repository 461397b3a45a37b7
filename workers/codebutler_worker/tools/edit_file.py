"""edit_file: one exact replacement in a file."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.confined import writable
from codebutler_worker.tools.difference import difference
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Result, ToolError
from codebutler_worker.tools.reading import read_text
from codebutler_worker.tools.write_file import put

MAX_BYTES = 8 * 2**20


class EditFileArguments(Arguments, frozen=True):
    """What becomes what."""

    path: Annotated[str, Meta(min_length=1, description="A file, relative to the repository.")]
    old: Annotated[str, Meta(min_length=1, description="The text as it stands there, to the letter.")]
    new: Annotated[str, Meta(description="The text that replaces it.")]
    all: Annotated[bool, Meta(description="Replace each occurrence; else there must be exactly one.")] = False


class EditFile:
    """Reads, replaces and writes behind the walls."""

    name = "edit_file"
    description = (
        "Replace text in a file. `old` must match exactly, with its indentation, and only once "
        "(give some lines around it), unless `all` is true. Shows the diff."
    )
    kind: Kind = "edit"
    arguments = EditFileArguments

    def describe(self, args: EditFileArguments) -> Described:
        """See the port."""
        given = {"file_path": args.path, "old_string": args.old, "new_string": args.new}
        return Described(args.path, "Edit", {**given, "replace_all": True} if args.all else given)

    async def run(self, context: Context, args: EditFileArguments) -> Result:
        """See the port.

        Raises ToolError unless the file is UTF-8 and has the old text exactly once (or ``all`` is set).
        """
        path = writable(context.workdir, args.path)
        before = await read_text(context, path, MAX_BYTES)
        if "\ufffd" in before:
            raise ToolError(f"{path}: not UTF-8: change it with a command")
        after = replaced(path, before, args)
        await put(context, path, after)
        return Result(f"Changed {path}.\n{difference(path, before, after)}")


def replaced(path: str, text: str, args: EditFileArguments) -> str:
    """The text with the replacement done. Raises ToolError if there is nothing or too much to replace. Pure."""
    old, new = args.old, args.new
    if old not in text and "\r\n" in text:
        # Models write line feeds, whatever the file has.
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
    count = text.count(old)
    if count == 0:
        raise ToolError(f"{path}: `old` is not in the file: read it again and copy the text exactly")
    if count > 1 and not args.all:
        raise ToolError(
            f"{path}: `old` is there {count} times: give more of what is around it, or all = true"
        )
    if old == new:
        raise ToolError(f"{path}: `old` and `new` are the same")
    return text.replace(old, new)
