"""`codebutler memory`: what is remembered about a repository, and forgetting it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from codebutler.cli.output import print_json, print_table, say
from codebutler.cli.which import repository
from codebutler.errors import CodeButlerError
from codebutler.memory.file import MemoryFile
from codebutler.memory.operations import Change, apply, facts_of

app = typer.Typer(help="What is remembered about a repository.", no_args_is_help=True, rich_markup_mode=None)
NAME = typer.Argument(help="A repository's name; not needed if there is one.")


@app.command()
def show(
    repo: Annotated[str, NAME] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what every new session is told, with numbers."""
    file = MemoryFile(Path(repository(repo).path))
    facts = facts_of(file.read())
    if as_json:
        print_json([{"number": number, "fact": fact} for number, fact in enumerate(facts, 1)])
    elif not facts:
        say(f"Nothing is remembered: write it into {file.path}, one fact a line, each after a dash.")
    else:
        print_table(("N", "FACT"), [(str(number), fact) for number, fact in enumerate(facts, 1)])


@app.command()
def forget(
    number: Annotated[
        int, typer.Argument(help="The fact's number, as `codebutler memory show` tells it.", min=1)
    ],
    repo: Annotated[str, NAME] = "",
) -> None:
    """Forget one fact."""
    file = MemoryFile(Path(repository(repo).path))
    facts = facts_of(file.read())
    if number > len(facts):
        raise CodeButlerError(f"there is no fact {number}: `codebutler memory show` tells what there is")
    # By its words: the numbers may have moved since.
    applied = file.change(partial(apply, (Change(facts[number - 1]),)))
    if not applied.made:
        raise CodeButlerError("the memory has just changed: run `codebutler memory show` again")
    say(f"Forgotten: {facts[number - 1]}")
