"""`codebutler chat`: the same conversation in a terminal."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from codebutler.cli.output import printable, printable_lines
from codebutler.cli.talk import talk
from codebutler.config.paths import Home
from codebutler.config.registry import Registry, find
from codebutler.control.wire import ControlReply, Posted, Said, SendRequest
from codebutler.errors import CodeButlerError, NotRunningError, RegistryError

PROMPT = "you> "


def run(
    repo: Annotated[str, typer.Argument(help="A repository's name; not needed if there is one.")] = "",
) -> None:
    """Talk to a repository's agent here; it all stands in its channel's thread too. Ctrl-D ends it."""
    entries = Registry(Home.from_env(os.environ)).load()
    if not repo and len(entries) != 1:
        names = ", ".join(entry.name for entry in entries) or "none; add one with `codebutler add-repo`"
        raise RegistryError(f"which repository? Registered: {names}")
    _Chat(find(entries, repo or entries[0].name).name).loop()


class _Chat:
    """One thread in one repository's channel."""

    def __init__(self, repo: str) -> None:
        self._repo = repo
        self._thread_ts: str | None = None

    def loop(self) -> None:
        """Read lines until end of file; an error is told and the chat goes on."""
        if sys.stdin.isatty():
            import readline  # noqa: F401 - line editing and history, just by being there

            typer.echo(f"Talking to {self._repo}. Ctrl-D ends it, !help lists commands.", err=True)
        while (line := self._read()) is not None:
            if not line.strip():
                continue
            try:
                self._say(line)
            except NotRunningError:
                raise
            except CodeButlerError as error:
                typer.echo(f"codebutler: {error}", err=True)
            except KeyboardInterrupt:
                typer.echo("\n(the turn goes on; say !stop to end it)", err=True)

    def _read(self) -> str | None:
        try:
            return input(PROMPT if sys.stdin.isatty() else "")
        except EOFError:
            return None
        except KeyboardInterrupt:
            typer.echo("", err=True)
            return ""

    def _say(self, text: str) -> None:
        talk(SendRequest(repo=self._repo, text=text, wait=True, thread_ts=self._thread_ts), self._hear)

    def _hear(self, reply: ControlReply) -> None:
        if isinstance(reply, Posted):
            self._thread_ts = reply.thread_ts
        if isinstance(reply, Said):
            self._show(reply)

    def _show(self, said: Said) -> None:
        if not said.progress:
            typer.echo(printable_lines(said.text))
        elif sys.stdout.isatty():
            typer.echo(typer.style(printable(said.text.partition("\n")[0]), dim=True), err=True)
