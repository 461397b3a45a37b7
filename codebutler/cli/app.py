"""The command table. A command's module is imported when the command runs, so that ``--help`` stays quick.

A target is a plain function with typer's annotations, or a ``typer.Typer`` for a group of commands.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

import typer
import typer.main
from typer._click import Command as AnyCommand
from typer._click import Context

from codebutler.chat.platform import PLATFORMS
from codebutler.cli.command import HELP_NAMES, App, CliCommand, CliGroup
from codebutler.domain.errors import EXIT_USAGE
from codebutler.domain.version import VERSION

PROGRAM = "codebutler"
DESCRIPTION = (
    f"Reach the coding agents on your own machine from {' or '.join(PLATFORMS)}: one channel per repository."
)
# The headings of `--help`.
SECTIONS = (
    ("Get started", ("demo", "setup", "add-repo", "supervise", "install")),
    ("Talk to agents", ("chat", "send", "adopt", "stop", "jobs")),
    ("See what happens", ("status", "dashboard", "ledger", "logs", "audit", "doctor")),
    (
        "Configure",
        ("repos", "remove-repo", "trust", "config", "allow", "deny", "memory", "skills", "sandbox"),
    ),
    ("Several machines", ("gateway", "host", "cluster")),
    ("Maintain", ("upgrade", "restart", "migrate", "uninstall", "manifest", "workspace", "completion")),
)
# The earliest command names.
FORMER_OPTIONS = MappingProxyType(
    {
        "--install": ("install",),
        "--uninstall": ("uninstall",),
        "--status": ("status",),
        "--logs": ("logs", "-f"),
    }
)
# What newcomers type.
SYNONYMS = MappingProxyType(
    {
        "add": "add-repo",
        "costs": "ledger",
        "init": "setup",
        "list": "repos",
        "new": "add-repo",
        "remove": "remove-repo",
        "run": "supervise",
        "start": "supervise",
        "update": "upgrade",
    }
)


@dataclass(frozen=True)
class Row:
    """One command: its line in ``--help``, and the ``module:attribute`` that runs it. ``options``: which of a
    chat platform's options it takes."""

    name: str
    help: str
    target: str
    options: Literal["", "setup_options", "place_options"] = ""


COMMANDS: tuple[Row, ...] = (
    Row(
        "setup",
        f"Connect to {' or '.join(PLATFORMS)}: tokens and allowed users.",
        "codebutler.cli.setup:setup",
        "setup_options",
    ),
    Row("allow", "Allow people to use the agents, or list who may.", "codebutler.cli.people:allow"),
    Row("deny", "Remove people from the list of allowed users.", "codebutler.cli.people:deny"),
    Row(
        "add-repo",
        "Register a repository and give it a channel.",
        "codebutler.cli.repositories:add_repo",
        "place_options",
    ),
    Row("repos", "List the registered repositories.", "codebutler.cli.repositories:repos"),
    Row(
        "remove-repo", "Stop serving a repository; its files stay.", "codebutler.cli.repositories:remove_repo"
    ),
    Row("trust", "Trust a repository's current configuration.", "codebutler.cli.repositories:trust"),
    Row("config", "Show or change the configuration.", "codebutler.cli.config:app"),
    Row("supervise", "Serve all registered repositories.", "codebutler.cli.serve:serve_repositories"),
    Row("gateway", "Serve repositories on other machines.", "codebutler.cli.serve:gateway"),
    Row("host", "Run this machine's agents for a gateway.", "codebutler.cli.cluster:host_app"),
    Row("demo", "Try it in the browser, without an account or a key.", "codebutler.cli.serve:demo"),
    Row("workspace", "Run the embedded chat workspace alone.", "codebutler.cli.serve:workspace"),
    Row("status", "Show what the running supervisor is doing.", "codebutler.cli.status:status"),
    Row("dashboard", "Open the dashboard in a browser.", "codebutler.cli.status:dashboard"),
    Row("send", "Send a message to a repository's agent.", "codebutler.cli.chat:send"),
    Row("adopt", "Continue a terminal session in the channel.", "codebutler.cli.chat:adopt"),
    Row("stop", "Stop the running work of a repository, or of all.", "codebutler.cli.chat:stop"),
    Row("chat", "Talk to a repository's agent in the terminal.", "codebutler.cli.chat:chat"),
    Row("logs", "Show the log, of all or of one repository.", "codebutler.cli.logs:logs"),
    Row("audit", "Show what was executed or refused; verify the audit log.", "codebutler.cli.logs:audit"),
    Row("ledger", "Show what runs cost, and who asked for them.", "codebutler.cli.ledger:ledger"),
    Row("jobs", "List scheduled jobs; run, pause or resume one.", "codebutler.cli.status:jobs"),
    Row("memory", "Show what agents remember; forget some of it.", "codebutler.cli.memory:app"),
    Row("skills", "List skills; create, enable or disable one.", "codebutler.cli.skills:app"),
    Row("migrate", "Migrate configuration and data from the WhatsApp era.", "codebutler.cli.migrate:migrate"),
    Row("upgrade", "Check what an upgrade would change.", "codebutler.cli.service:upgrade"),
    Row("restart", "Restart the supervisor; running work resumes.", "codebutler.cli.service:restart"),
    Row("sandbox", "Manage the sandbox: build the docker image for agents.", "codebutler.cli.doctor:app"),
    Row("cluster", "Manage a cluster of several machines.", "codebutler.cli.cluster:app"),
    Row("doctor", "Check the installation and suggest fixes.", "codebutler.cli.doctor:run"),
    Row("install", "Run the supervisor as a user service.", "codebutler.cli.service:install"),
    Row("uninstall", "Remove the service; configuration and data stay.", "codebutler.cli.service:uninstall"),
    Row("completion", "Complete commands in bash, zsh and fish.", "codebutler.cli.completion:run"),
    Row("manifest", "Print what to create in a chat before `setup`.", "codebutler.cli.setup:manifest"),
)


class LazyCommand(CliCommand):
    """Stands for a command in ``--help`` until it is called."""

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
            single.command(self.row.name, help=target.__doc__ or self.row.help)(
                self._with_platform_options(target)
            )
            command = typer.main.get_command(single)
        command.name = self.row.name
        return command

    def _with_platform_options(self, target: Callable[..., None]) -> Callable[..., None]:
        if not self.row.options:
            return target
        from codebutler.chat.platform import platforms
        from codebutler.cli.command import with_options

        options = [option for each in platforms() for option in getattr(each, self.row.options)]
        return with_options(target, options)


class LazyGroup(CliGroup):
    """A group of LazyCommands, one per row of ``COMMANDS``."""

    sections = SECTIONS
    synonyms = SYNONYMS

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for row in COMMANDS:
            self.add_command(LazyCommand(row))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """The options of an earlier version (`--install` and the like) become the commands that replaced
        them; `help COMMAND` is `COMMAND --help`."""
        if args and args[0] == "help":
            args = [*args[1:], "--help"]
        if args and args[0] in FORMER_OPTIONS:
            args = [*FORMER_OPTIONS[args[0]], *args[1:]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, AnyCommand | None, list[str]]:
        """Import the module of the requested command, and no other."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


def build() -> AnyCommand:
    """The whole command line."""
    settings = {"help_option_names": list(HELP_NAMES)}
    app = App(DESCRIPTION, LazyGroup, callback=_root, invoke_without_command=True, context_settings=settings)
    return typer.main.get_command(app)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        sys.stdout.write(f"{PROGRAM} {VERSION}\n")
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
