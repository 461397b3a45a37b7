"""The manual page `codebutler(1)`, written from the commands themselves: see man-pages(7) and groff_man(7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codebutler.cli.app import DESCRIPTION, LazyCommand, LazyGroup, build
from codebutler.cli.command import metavar
from tests.unit.docs.pages import ROOT

PAGE: Path = ROOT / "docs" / "reference" / "codebutler.1"
EXIT_CODES = (
    ("0", "Success."),
    ("1", "Failure."),
    ("2", "Wrong usage."),
    ("78", "Invalid configuration."),
)
FILES = (
    ("~/.codebutler/config.json", "The configuration for all repositories."),
    (".codebutler/config.json", "The configuration of one repository, in its checkout."),
    ("~/.codebutler/logs", "The logs."),
)
VARIABLES = (
    ("CODEBUTLER_HOME", "The directory of the configuration and data; defaults to ~/.codebutler."),
    ("NO_COLOR", "Do not colour the output."),
)


def manual() -> str:
    """The whole page."""
    group = build()
    assert isinstance(group, LazyGroup)
    lines = ['.TH CODEBUTLER 1 "" CodeButler "User Commands"', ".SH NAME"]
    lines += [rf"codebutler \- {plain(DESCRIPTION[0].lower() + DESCRIPTION[1:].rstrip('.'))}"]
    lines += [".SH SYNOPSIS", r".B codebutler", r".I COMMAND", r"[\fIOPTION\fR]\.\.\.".replace(r"\.", ".")]
    lines += [".SH DESCRIPTION", "Each command explains itself with", r".BR \-\-help ."]
    for heading, names in group.sections:
        lines.append(f".SH {plain(heading.upper())}")
        for name in names:
            command = group.commands[name]
            assert isinstance(command, LazyCommand)
            lines += described(f"codebutler {name}", command.load())
    for heading, rows in (("EXIT STATUS", EXIT_CODES), ("ENVIRONMENT", VARIABLES), ("FILES", FILES)):
        lines.append(f".SH {heading}")
        for name, meaning in rows:
            lines += [".TP", rf"\fB{plain(name)}\fR", plain(meaning)]
    return "\n".join(lines) + "\n"


def described(called: str, command: Any) -> Iterator[str]:
    """A command, its options, and the commands below it."""
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from described(f"{called} {name}", each)
        return
    words = [
        plain(f"[{metavar(each)}]" if not each.required else metavar(each)) for each in arguments(command)
    ]
    yield f".SS {' '.join([plain(called), *words])}"
    paragraphs = [re.sub(r"\s+", " ", each).strip() for each in (command.help or "").split("\n\n")]
    for count, paragraph in enumerate(paragraphs):
        yield from ([".PP"] if count else []) + [plain(paragraph)]
    for option in command.params:
        if option.param_type_name == "option" and not option.hidden:
            names = ", ".join(rf"\fB{plain(name)}\fR" for name in (*option.opts, *option.secondary_opts))
            value = "" if option.is_flag else rf" \fI{plain(metavar(option))}\fR"
            yield from (".TP", names + value, plain(option.help or ""))


def arguments(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "argument"]


def plain(text: str) -> str:
    """``text`` as roff shows it: no escapes, no requests, hyphens that can be copied."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("…", "...").replace("`", r"\(ga")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)
