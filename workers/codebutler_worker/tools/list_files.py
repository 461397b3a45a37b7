"""list_files: what files the repository has, without those that git ignores."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.confined import is_directory, relative
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Result, ToolError

LIMIT_BYTES = 2**20
LIMIT_S = 30.0
SCRIPT = """
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


class ListFilesArguments(Arguments, frozen=True):
    """Where to look."""

    path: Annotated[str, Meta(description="A directory, relative to the repository.")] = "."
    most: Annotated[int, Meta(ge=1, le=2000, description="At most so many files.")] = 500


class ListFiles:
    """Asks ripgrep, else git, else find, behind the walls."""

    name = "list_files"
    description = "List the files below a directory of the repository; what .gitignore names is left out."
    kind: Kind = "read"
    arguments = ListFilesArguments

    def describe(self, args: ListFilesArguments) -> Described:
        """See the port."""
        return Described(args.path, "List", {"path": args.path})

    async def run(self, context: Context, args: ListFilesArguments) -> Result:
        """See the port. Raises ToolError for a path that is no directory of the repository."""
        found = relative(context.workdir, args.path)
        if not is_directory(context.workdir, args.path):
            raise ToolError(f"{args.path}: a file, not a directory")
        target = "." if found == "." else f"./{found}"
        ran = await context.programs.run(
            ("/bin/sh", "-c", SCRIPT, "list", target), limit_bytes=LIMIT_BYTES, limit_s=LIMIT_S
        )
        if ran.exit_code != 0 and not ran.output.strip():
            return Result("(no files)")
        files = sorted({line.removeprefix("./") for line in ran.output.split("\n") if line})
        shown = files[: args.most]
        more = len(files) - len(shown)
        note = (
            f"\n… and {more}{' or more' if ran.truncated else ''} more files" if more or ran.truncated else ""
        )
        return Result("\n".join(shown) + note, truncated=bool(note))
