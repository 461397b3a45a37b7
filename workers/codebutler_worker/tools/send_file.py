"""send_file: a file of the repository goes to the thread."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

from msgspec import Meta

from codebutler_worker.sandbox.destinations import open_beneath
from codebutler_worker.tools.confined import is_directory, reason, relative
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Result, Send, ToolError


class SendFileArguments(Arguments, frozen=True):
    """Which file."""

    path: Annotated[str, Meta(min_length=1, max_length=1000, description="Relative to the repository.")]


class SendFile:
    """Only names it: what sends files checks it once more, and has limits of its own."""

    name = "send_file"
    description = "Send a file of the repository to the person, as an attachment in the thread."
    kind: Kind = "own"
    arguments = SendFileArguments

    def describe(self, args: SendFileArguments) -> Described:
        """See the port."""
        return Described(args.path, self.name, {"path": args.path})

    async def run(self, context: Context, args: SendFileArguments) -> Result:
        """See the port.

        Raises ToolError for what is no regular file of the repository, and for names an envelope cannot
        hold.
        """
        path = relative(context.workdir, args.path)
        if "\n" in path or "<<<" in path:
            raise ToolError("give the file another name first")
        if is_directory(context.workdir, path):
            raise ToolError(f"{path}: a directory: send a file")
        try:
            descriptor = await asyncio.to_thread(
                open_beneath, context.workdir, path, os.O_RDONLY | os.O_NONBLOCK
            )
        except OSError as error:
            raise ToolError(f"{path}: {reason(error)}") from None
        os.close(descriptor)
        return Result(f"{path} is on its way.", effect=Send(path))
