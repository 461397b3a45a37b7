"""The text of a file, read behind the walls."""

from __future__ import annotations

from codebutler_worker.tools.confined import readable
from codebutler_worker.tools.encoding import Decoded, decoded
from codebutler_worker.tools.port import Context, ToolError

LIMIT_S = 30.0
END = "."
SCRIPT = f'cat -- "$1" || exit 1; printf {END}'
"""Argument: the file. What is printed last shows where it ends, with or without a newline."""


async def read_text(context: Context, path: str, limit_bytes: int) -> Decoded:
    """The text of a file of the repository. Raises ToolError, also for one that is larger or is no text."""
    found = readable(context.workdir, path, limit_bytes)
    ran = await context.programs.run(
        ("/bin/sh", "-c", SCRIPT, "read", f"./{found}"), limit_bytes=limit_bytes + 4096, limit_s=LIMIT_S
    )
    if ran.exit_code != 0 or ran.truncated:
        words = " ".join(ran.output.split())[-200:]
        raise ToolError(f"{path}: cannot be read: {ran.note or words or 'no reason given'}")
    try:
        return decoded(ran.data.removesuffix(END.encode()))
    except ToolError as error:
        raise ToolError(f"{path}: {error}") from None
