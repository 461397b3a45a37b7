"""The commands that run until they are stopped: `codebutler supervise`, `demo` and `workspace`."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import tempfile
import webbrowser
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from codebutler.cli.context import environment, home
from codebutler.cli.output import notice, print_line
from codebutler.config.schema import AgentName
from codebutler.domain.errors import CodeButlerError, ConfigError

if TYPE_CHECKING:
    from codebutler.operations.demo import Demo
    from codebutler.workspace.server import Options


def serve_repositories() -> None:
    """Serve all registered repositories until SIGTERM or SIGINT; a second signal ends it immediately."""
    from codebutler.platform.processes import Reexec

    reexec = Reexec()
    from codebutler.parent.bootstrap import supervise

    reexec.wanted = asyncio.run(supervise(home(), dict(environment())))


def gateway() -> None:
    """Serve the repositories of hosts until SIGTERM or SIGINT; stand by while another gateway is active."""
    need_cluster()
    from codebutler.parent.gateway import gateway as lead

    asyncio.run(lead(home(), dict(environment()), notice))


def need_cluster() -> None:
    """Raises ConfigError without the extra that several machines need."""
    if find_spec("nats") is None or find_spec("nkeys") is None:
        raise ConfigError(
            "nats-py or nkeys is not installed: install codebutler with its extra, `codebutler[cluster]`"
        )


def demo(
    path: Annotated[
        Path | None, typer.Argument(help="Work on a copy of this repository; defaults to a sample.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 picks a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    agent: Annotated[AgentName, typer.Option(help="The agent that answers.")] = "rehearsal",
    as_json: Annotated[bool, typer.Option("--json", help="Print its addresses as one JSON line.")] = False,
) -> None:
    """Try it without an account: an embedded workspace, a supervisor and a sample repository, until Ctrl-C."""
    from codebutler.operations.demo import DemoOptions, remove_scratch, run_demo, scratch_root

    scratch = Path(tempfile.mkdtemp(prefix="codebutler-", dir=scratch_root()))
    if path is not None and path.is_dir():
        notice(f"Copying {path}: the demo changes only the copy.")
    on_ready = partial(_announce, as_json=as_json, browser=browser)
    try:
        asyncio.run(run_demo(DemoOptions(path, port, agent), scratch, os.environ, on_ready))
    finally:
        remove_scratch(scratch)


def _announce(demo: Demo, *, as_json: bool, browser: bool) -> None:
    if as_json:
        print_line(msgspec.json.encode(demo).decode())
        sys.stdout.flush()
        return
    ours = f"CODEBUTLER_HOME={shlex.quote(demo.home)} {shlex.quote(sys.argv[0])}"
    print_line(f"Open {demo.url}")
    print_line(f"You are talking to the agent of {demo.path}, a temporary copy. Ctrl-C ends the demo.")
    if demo.dashboard:
        print_line(f"Watch it work: {demo.dashboard} (one-time link)")
        print_line(f"For another one-time link (Review needs one): {ours} dashboard --no-browser")
    print_line(f"Or chat in another terminal: {ours} chat")
    if not demo.sandboxed:
        notice(
            "bubblewrap does not work here, so the rehearsal agent runs without a sandbox (sandbox.mode none)"
        )
    sys.stdout.flush()
    if browser:
        webbrowser.open(demo.url)


def workspace(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 picks a free one.")] = 0,
    channel: Annotated[list[str] | None, typer.Option(help="A channel to create; may be repeated.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="Another person; may be repeated.")] = None,
    bot: Annotated[list[str] | None, typer.Option(help="Another app's bot; may be repeated.")] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Your app's manifest, for its slash commands and shortcuts.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print addresses and tokens as one JSON line.")
    ] = False,
) -> None:
    """Run the embedded Slack-compatible workspace until SIGTERM or SIGINT; it keeps everything in memory."""
    from codebutler.workspace.manifest import Subscriptions, offers_of, subscriptions_of
    from codebutler.workspace.server import Options

    options = Options(
        channels=tuple(channel or ["general"]),
        port=port,
        guests=tuple(user or []),
        guest_bots=tuple(bot or []),
        subscriptions=Subscriptions(with_opt_in=True),
    )
    if manifest is not None:
        text = _read_manifest(manifest)
        options = msgspec.structs.replace(
            options, offers=offers_of(text), subscriptions=subscriptions_of(text)
        )
    asyncio.run(_serve_workspace(options, as_json=as_json))


async def _serve_workspace(options: Options, *, as_json: bool) -> None:
    from codebutler.platform.signals import Stopping
    from codebutler.workspace.server import WorkspaceServer

    stopping = Stopping()
    async with WorkspaceServer(options) as workspace:
        announcement = workspace.announcement()
        users = {} if as_json else announcement.pop("users", {})
        lines = (
            [json.dumps(announcement)]
            if as_json
            else [f"{name:<11} {value}" for name, value in announcement.items()]
        )
        lines += [f"{name:<11} {user['id']} {user['token']}" for name, user in users.items()]
        typer.echo("\n".join(lines))
        sys.stdout.flush()
        with stopping.on_signals():
            await stopping.asked.wait()


def _read_manifest(manifest: Path) -> str:
    try:
        return manifest.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise CodeButlerError(f"cannot read {manifest}: {why}") from None
