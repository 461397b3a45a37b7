"""``codebutler doctor --bundle``: show every file of the report, ask, then write the archive."""

from __future__ import annotations

import pydoc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from codebutler.cli.context import environment, home
from codebutler.cli.output import is_interactive, notice, printable_lines, say
from codebutler.cli.prompts import ask
from codebutler.domain.errors import EXIT_USAGE
from codebutler.protocol.messages import Finding

NAME = "codebutler-report.zip"
QUESTION = "Write it? It holds what you have just seen, and nothing else (y/n)"


def write_bundle(findings: Sequence[Finding], output: Path | None, *, yes: bool) -> None:
    """Collect, show, ask, write. Raises CodeButlerError if the archive cannot be written; exit code 1 after a no, 2
    if nobody is there to be asked."""
    from codebutler.operations.bundle import collect, write_archive

    path = output or Path(NAME)
    files = collect(home(), environment(), findings)
    text = shown(files)
    if yes or not is_interactive():
        sys.stdout.write(text)
    else:
        pydoc.pager(text)
    for name, content in files.items():
        notice(f"  {name}: {len(content.splitlines())} lines, {len(content.encode())} bytes")
    if not yes:
        _ask()
    write_archive(path, files)
    say(f"Wrote {path}. Look through it once more before you attach it: it can be read by everybody then.")


def shown(files: Mapping[str, str]) -> str:
    """Every file under its name. Pure."""
    return "\n".join(f"===== {name}\n{printable_lines(content)}" for name, content in files.items())


def _ask() -> None:
    if not is_interactive():
        notice("Nothing was written: nobody is there to be asked. Add --yes to write it.")
        raise typer.Exit(EXIT_USAGE)
    try:
        answer = ask(QUESTION, "n")
    except EOFError:
        answer = "n"
    if answer.lower() not in ("y", "yes"):
        notice("Nothing was written.")
        raise typer.Exit(1)
