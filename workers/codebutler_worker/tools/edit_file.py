"""edit_file: one replacement in a file."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.confined import writable
from codebutler_worker.tools.difference import difference
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Result
from codebutler_worker.tools.reading import read_text
from codebutler_worker.tools.replacing import applied, changes
from codebutler_worker.tools.write_file import put

MAX_BYTES = 8 * 2**20


class EditFileArguments(Arguments, frozen=True):
    """What becomes what."""

    path: Annotated[str, Meta(min_length=1, description="A file, relative to the repository.")]
    old: Annotated[str, Meta(min_length=1, description="The text as it stands there.")]
    new: Annotated[str, Meta(description="The text that replaces it.")]
    all: Annotated[bool, Meta(description="Replace each occurrence; else there must be exactly one.")] = False


class EditFile:
    """Reads, replaces and writes behind the walls."""

    name = "edit_file"
    description = (
        "Replace text in a file. Copy `old` from the file, with its indentation and without line numbers; it must be "
        "there only once (give some lines around it), unless `all` is true. Shows the diff."
    )
    kind: Kind = "edit"
    arguments = EditFileArguments

    def describe(self, args: EditFileArguments) -> Described:
        """See the port."""
        given = {"file_path": args.path, "old_string": args.old, "new_string": args.new}
        return Described(args.path, "Edit", {**given, "replace_all": True} if args.all else given)

    async def run(self, context: Context, args: EditFileArguments) -> Result:
        """See the port.

        Raises ToolError unless the file is a text that has the old text exactly once (or ``all`` is set).
        """
        path = writable(context.workdir, args.path)
        before = await read_text(context, path, MAX_BYTES)
        # On a thread: a long text is compared for a while.
        after, overlooked = await asyncio.to_thread(_replaced, path, before.text, args)
        await put(context, path, before.encoding.encoded(after))
        note = f" (found without regard to {overlooked})" if overlooked else ""
        return Result(f"Changed {path}{note}.\n{difference(path, before.text, after)}")


def _replaced(path: str, text: str, args: EditFileArguments) -> tuple[str, str]:
    made, overlooked = changes(path, text, args.old, args.new, every=args.all)
    return applied(text, made), overlooked
