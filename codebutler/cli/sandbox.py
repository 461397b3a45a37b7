"""``codebutler sandbox build``: the image for agents with `sandbox.mode` `docker`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from codebutler.cli.command import App
from codebutler.cli.output import say
from codebutler.config.programs import BASE, DOCKERFILE, RUNNER, TOOLS
from codebutler.domain.errors import CodeButlerError

app = App("Manage the sandbox.")


@app.callback()
def _group() -> None:
    """Manage the sandbox."""


@app.command()
def build(
    base: Annotated[str, typer.Option(help="The base image; pulled if missing.")] = BASE,
    root: Annotated[
        Path | None, typer.Option(help="Build on this root file system (tar) instead; needs no registry.")
    ] = None,
    package: Annotated[list[str] | None, typer.Option(help="An extra package; may be repeated.")] = None,
    host: Annotated[
        str, typer.Option(help="The docker daemon; defaults to DOCKER_HOST, then to docker's own.")
    ] = "",
) -> None:
    """Build the image codebutler-runner, in which agents work if `sandbox.mode` is `docker`."""
    program = shutil.which("docker", path="/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin")
    if program is None:
        raise CodeButlerError(
            "docker is not installed: install it (Debian, Ubuntu: apt-get install docker.io)"
        )
    client = [program, *(("--host", host) if host else ())]
    if root is not None:
        if not root.is_file():
            raise CodeButlerError(
                f"{root} is not a file: make it with debootstrap and tar, or leave --root out"
            )
        base = f"{RUNNER}-root"
        say(f"Importing {root} …")
        _run([*client, "import", str(root), base])
    say(f"Building {RUNNER} on {base} …")
    arguments = {"BASE": base, "PACKAGES": " ".join(package or ()), "TOOLS": TOOLS}
    words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    _run([*client, "build", "--tag", RUNNER, *words, "-"], DOCKERFILE)
    say(f'Built {RUNNER}: set "sandbox": {{"mode": "docker"}} in the configuration to use it.')


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, env=dict(os.environ), check=False
    )
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = next(
            (line for line in reversed(lines) if "returned a non-zero code" not in line), "no error message"
        )
        raise CodeButlerError(f"docker {command[-1] if command[-1] != '-' else 'build'} failed: {said[:300]}")
