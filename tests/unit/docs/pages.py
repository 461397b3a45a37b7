"""The documentation as data: its fenced blocks, its words in code, and our own command line to hold them against."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from typer._click.exceptions import ClickException, MissingParameter
from typer.core import TyperGroup

from codebutler.cli.app import COMMANDS, PROGRAM, LazyCommand, build
from codebutler.cli.command import HELP_NAMES

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
# What stands for a value in the pages, and one that it could be.
STANDS_FOR = {"N": "3", "PORT": "7788", "SHELL": "zsh"}


@dataclass(frozen=True)
class Block:
    """A fenced block: ``language`` is what stands beside the fence."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The command lines of a console block, without their comments; of a session those after ``$``."""
        lines = self.text.splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [stripped for line in lines if (stripped := re.sub(r"(^|\s+)#.*", "", line).strip())]


def blocks(page: Path) -> Iterator[Block]:
    """Every fenced block of a page, its indentation taken off."""
    found = re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(), re.MULTILINE | re.DOTALL)
    for match in found:
        line = page.read_text()[: match.start()].count("\n") + 1
        text = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
        yield Block(page, line, match[2], text)


def spans(page: Path) -> list[str]:
    """Everything that stands in code inside a line."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [span.replace("\\|", "|") for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)]


def readings(command: str) -> Iterator[list[str]]:
    """The words of a command line as it is written about: ``[PATH]`` with it, each of ``list|info`` by itself."""
    words = shlex.split(re.sub(r"[\[\]]", "", command.replace("<", "'<").replace(">", ">'")))
    many = next(
        (index for index, word in enumerate(words) if re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", word)), None
    )
    if many is None:
        yield [STANDS_FOR.get(word, word) for word in words]
        return
    for one in words[many].split("|"):
        yield from readings(shlex.join([*words[:many], one, *words[many + 1 :]]))


def fault(words: list[str], *, whole: bool) -> str:
    """Why our command line does not take these words after ``codebutler``, "" if it does. Nothing is run.

    Unless ``whole``, what has to follow may be left out.
    """
    command = build()
    context = command.make_context(PROGRAM, list(words), resilient_parsing=False)
    try:
        while isinstance(context.command, TyperGroup) and context._protected_args:
            rest = [*context._protected_args, *context.args]
            name, found, left = context.command.resolve_command(context, rest)
            assert found is not None
            context = found.make_context(name, left, parent=context)
    except MissingParameter as error:
        return error.format_message() if whole else ""
    except ClickException as error:
        return error.format_message()
    return ""


def options(name: str) -> set[str]:
    """The options of one of our commands, and of those below it."""
    row = next(row for row in COMMANDS if row.name == name)
    command = LazyCommand(row).load()
    below = command.commands.values() if isinstance(command, TyperGroup) else ()
    found = {
        opt
        for each in (command, *below)
        for param in each.params
        for opt in (*param.opts, *param.secondary_opts)
    }
    return {*found, *HELP_NAMES}
