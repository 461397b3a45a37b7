"""code_search: lines of the repository's files, without those that git ignores."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.confined import is_directory, relative
from codebutler_worker.tools.display import clipped
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Result, ToolError

LIMIT_BYTES = 512 * 2**10
LIMIT_S = 30.0
LINE_CHARS = 300
SCRIPT = """
pattern=$1 target=$2 kind=$3 case=$4 glob=$5
# What cannot be opened is not worth a word; why it failed altogether is.
quietly() {
  said=$(mktemp) || exit 2
  "$@" 2>"$said"
  code=$?
  [ $code -le 1 ] || cat "$said"
  rm -f "$said"
  exit $code
}
if command -v rg >/dev/null 2>&1; then
  [ "$kind" = text ] && kind=-F || kind=-s
  [ "$case" = any ] && case=-i || case=-s
  quietly rg --no-config --no-require-git -nH --no-heading --color=never --hidden --sort=path ${glob:+--glob "$glob"} \\
    --glob '!.git' --glob '!.codebutler' "$kind" "$case" -e "$pattern" -- "$target"
fi
[ "$kind" = text ] && kind=-F || kind=-E
[ "$case" = any ] && case=-i || case=
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
"""All three end with 1 where nothing was found, and with 2 or more for an error."""


class CodeSearchArguments(Arguments, frozen=True):
    """What to look for."""

    pattern: Annotated[
        str, Meta(min_length=1, max_length=1000, description="The text, or a regular expression.")
    ]
    path: Annotated[str, Meta(description="Look below this directory, or in this file.")] = "."
    regex: Annotated[bool, Meta(description="`pattern` is an extended regular expression.")] = False
    any_case: Annotated[bool, Meta(description="Upper and lower case are the same.")] = False
    glob: Annotated[str, Meta(max_length=200, description="Only files with such a name, as *.py")] = ""
    most: Annotated[int, Meta(ge=1, le=500, description="At most so many lines.")] = 100


class CodeSearch:
    """Asks ripgrep, else git, else grep, behind the walls."""

    name = "code_search"
    description = (
        "Find lines in the repository's files: as file:line:text. What .gitignore names is left out."
    )
    kind: Kind = "read"
    arguments = CodeSearchArguments

    def describe(self, args: CodeSearchArguments) -> Described:
        """See the port."""
        where = "" if args.path == "." else f" in {args.path}"
        return Described(f"{args.pattern}{where}", "Grep", {"pattern": args.pattern, "path": args.path})

    async def run(self, context: Context, args: CodeSearchArguments) -> Result:
        """See the port. Raises ToolError for a path outside the repository and a pattern that is none."""
        found = relative(context.workdir, args.path)
        is_directory(context.workdir, args.path)
        words = (
            args.pattern,
            "." if found == "." else f"./{found}",
            "regex" if args.regex else "text",
            "any" if args.any_case else "same",
            args.glob,
        )
        ran = await context.programs.run(
            ("/bin/sh", "-c", SCRIPT, "search", *words), limit_bytes=LIMIT_BYTES, limit_s=LIMIT_S
        )
        if ran.exit_code > 1:
            raise ToolError(ran.note or " ".join(ran.output.split())[:300] or "the search failed")
        return told(ran.output, args.most, truncated=ran.truncated)


def told(output: str, most: int, *, truncated: bool) -> Result:
    """The lines as the model reads them. Pure."""
    lines = [line.removeprefix("./") for line in output.split("\n") if line]
    if not lines:
        return Result("(nothing found)")
    more = truncated or len(lines) > most
    note = "\n… and more: look for something rarer, or in a part of the repository" if more else ""
    shown = [clipped(line, LINE_CHARS) for line in lines[:most]]
    return Result("\n".join(shown) + note, truncated=more or shown != lines[:most])
