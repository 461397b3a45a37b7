"""Where programs are found by a supervisor that a service manager started: with a bare PATH.

| # | case |
|---|---|
| P01 | not installed, not on the PATH, not logged in: three messages, and the command of each one leads to the next |
| P02 | what the login shell's own files put on the PATH is found |
| P03 | `doctor` at a terminal that finds more than the supervisor says so |
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from codebutler.platform.lookup import login_shell
from tests.e2e.house import House, house, whole_text

BARE = "/usr/bin:/bin"
VERSION = "2.1.328 (Claude Code)"


def install(directory: Path) -> Path:
    """A Claude Code that tells its version and can do nothing else; open to the user whom agents become."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "claude"
    program.write_text(f"#!/bin/sh\necho '{VERSION}'\n")
    program.chmod(0o755)
    return program


async def agents(built: House, channel: str) -> str:
    """The line about Claude in the answer to `!agents`."""
    ts = await built.say(channel, "!agents")
    said = whole_text(await built.answer(channel, ts, "claude"))
    return next(line for line in said.splitlines() if "claude" in line)


async def test_p01_three_messages_each_with_the_command_that_helps(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample", extra_env={"PATH": BARE}) as built:
        channel = await built.add_repo(git_repo, "sample")
        await built.supervise()
        said = await agents(built, channel)
        assert "Claude Code is not installed: run `npm install -g --prefix ~/.local " in said
        found = install(tmp_path / ".npm-global" / "bin")
        said = await agents(built, channel)
        assert f"not on the supervisor's PATH, but installed at {found}" in said
        advised = re.search(r"`codebutler ([^`]+)`", said)
        assert advised is not None
        assert "Supervisor reloaded" in await built.run(*shlex.split(advised[1]))
        said = await agents(built, channel)
        assert "2.1.328" in said
        assert "not logged in: run `claude auth login`" in said
        assert f"{built.home}/.env" in said


async def test_p02_what_the_login_shell_finds_is_found(tmp_path: Path, git_repo: Path) -> None:
    install(tmp_path / "tools")
    for name in (".profile", ".bashrc", ".zshenv"):
        (tmp_path / name).write_text(f"export PATH={tmp_path}/tools:$PATH\n")
    assert login_shell() is not None
    async with house(tmp_path, "sample", extra_env={"PATH": BARE}) as built:
        channel = await built.add_repo(git_repo, "sample")
        await built.supervise()
        assert "2.1.328" in await agents(built, channel)


async def test_p03_doctor_tells_what_only_the_terminal_finds(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample", extra_env={"PATH": BARE}) as built:
        await built.add_repo(git_repo, "sample")
        await built.supervise()
        found = install(tmp_path / "odd")
        built.env["PATH"] = f"{found.parent}{os.pathsep}{BARE}"
        said = await built.run("doctor", check=False)
        assert (
            f"claude (default): Claude Code is not on the supervisor's PATH, but installed at {found}" in said
        )
