"""The command table. A command's module is imported when the command runs, so that ``--help`` stays quick.

A target is a plain function with typer's annotations, or a ``typer.Typer`` for a group of commands.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import typer
import typer.main
from typer._click import Command as AnyCommand
from typer._click import Context

from codebutler.cli.command import HELP_NAMES, App, CliCommand, CliGroup
from codebutler.domain.errors import EXIT_USAGE

PROGRAM = "codebutler"
DESCRIPTION = (
    "Reach the coding agents on your own machine from Slack or Telegram: one channel per repository."
)


@dataclass(frozen=True)
class Row:
    """One command: what ``--help`` says of it, and ``module:attribute`` of what it runs."""

    name: str
    help: str
    target: str


COMMANDS: tuple[Row, ...] = (
    Row("setup", "Connect to Slack or Telegram: tokens, and who may use it.", "codebutler.cli.setup:setup"),
    Row("allow", "Allow people to use the agents, or list who may.", "codebutler.cli.allow:allow"),
    Row("deny", "Take people off the list of those who may.", "codebutler.cli.allow:deny"),
    Row("add-repo", "Give a repository a channel and register it.", "codebutler.cli.add_repo:run"),
    Row("repos", "List the registered repositories.", "codebutler.cli.repositories:repos"),
    Row(
        "remove-repo", "Stop serving a repository; its files stay.", "codebutler.cli.repositories:remove_repo"
    ),
    Row("trust", "Trust a repository's configuration as it is now.", "codebutler.cli.repositories:trust"),
    Row("config", "Show or change the configuration.", "codebutler.cli.config:app"),
    Row("supervise", "Serve all registered repositories.", "codebutler.cli.serve:serve_repositories"),
    Row("demo", "Try it in the browser: no account, no key.", "codebutler.cli.serve:demo"),
    Row("workspace", "Run the embedded chat workspace alone.", "codebutler.cli.serve:workspace"),
    Row("status", "Show what the running supervisor does.", "codebutler.cli.status:status"),
    Row("dashboard", "Open the dashboard in a browser.", "codebutler.cli.status:dashboard"),
    Row("send", "Send a message to a repository's agent.", "codebutler.cli.chat:send"),
    Row("stop", "Stop the running work of a repository, or of all.", "codebutler.cli.chat:stop"),
    Row("chat", "Talk to a repository's agent in the terminal.", "codebutler.cli.chat:chat"),
    Row("logs", "Show the log, of all or of one repository.", "codebutler.cli.logs:logs"),
    Row("audit", "Show what was executed or refused; verify the audit log.", "codebutler.cli.logs:audit"),
    Row("jobs", "List scheduled jobs; run, pause or resume one.", "codebutler.cli.status:jobs"),
    Row("memory", "Show what agents remember; forget some of it.", "codebutler.cli.memory:app"),
    Row("skills", "List skills; create, enable or disable one.", "codebutler.cli.skills:app"),
    Row("migrate", "Migrate configuration and data from the WhatsApp era.", "codebutler.cli.migrate:run"),
    Row("sandbox", "Manage the sandbox: build the docker image for agents.", "codebutler.cli.sandbox:app"),
    Row("doctor", "Check the installation, and say what to do.", "codebutler.cli.doctor:run"),
    Row("install", "Run the supervisor as a user service.", "codebutler.cli.install:run"),
    Row("uninstall", "Remove the service; configuration and data stay.", "codebutler.cli.install:remove"),
    Row("completion", "Complete commands in bash, zsh and fish.", "codebutler.cli.completion:run"),
    Row("manifest", "Print the Slack app manifest or its link.", "codebutler.cli.setup:print_manifest"),
)


# The headings of `--help`.
SECTIONS = (
    ("Get started", ("demo", "setup", "add-repo", "supervise", "install")),
    ("Talk to agents", ("chat", "send", "stop", "jobs")),
    ("See what happens", ("status", "dashboard", "logs", "audit", "doctor")),
    (
        "Configure",
        ("repos", "remove-repo", "trust", "config", "allow", "deny", "memory", "skills", "sandbox"),
    ),
    ("Maintain", ("migrate", "uninstall", "manifest", "workspace", "completion")),
)

# What it was called in the beginning.
FORMER = MappingProxyType(
    {
        "--install": ("install",),
        "--uninstall": ("uninstall",),
        "--status": ("status",),
        "--logs": ("logs", "-f"),
    }
)


class LazyCommand(CliCommand):
    """Stands for a command in ``--help`` until somebody calls it."""

    def __init__(self, row: Row) -> None:
        super().__init__(row.name, help=row.help)
        self.row = row

    def load(self) -> AnyCommand:
        """The real command, imported."""
        module, _, attribute = self.row.target.partition(":")
        target: Any = getattr(importlib.import_module(module), attribute)
        if isinstance(target, typer.Typer):
            command = typer.main.get_command(target)
        else:
            single = App("", pretty_exceptions_enable=False)
            single.command(self.row.name, help=target.__doc__ or self.row.help)(target)
            command = typer.main.get_command(single)
        command.name = self.row.name
        return command


class LazyGroup(CliGroup):
    """A group of LazyCommands, one per row of ``COMMANDS``."""

    sections = SECTIONS

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for row in COMMANDS:
            self.add_command(LazyCommand(row))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """The options of an earlier product (`--install` and the like) are read as the commands they became."""
        if args and args[0] in FORMER:
            args = [*FORMER[args[0]], *args[1:]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, AnyCommand | None, list[str]]:
        """Import the module of the command that was asked for, and of no other."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


def build() -> AnyCommand:
    """The whole command line."""
    settings = {"help_option_names": list(HELP_NAMES)}
    app = App(DESCRIPTION, LazyGroup, callback=_root, invoke_without_command=True, context_settings=settings)
    return typer.main.get_command(app)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        sys.stdout.write(f"{PROGRAM} {version(PROGRAM)}\n")
        raise typer.Exit


def _root(
    ctx: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        sys.stdout.write(ctx.get_help() + "\n")
        raise typer.Exit(EXIT_USAGE)
