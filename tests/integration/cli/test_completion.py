"""Completion in real shells, installed as a person installs it: Tab is pressed, and the word is there."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from codebutler.cli.completion import SCRIPTS
from codebutler.config.paths import Home
from codebutler.config.registry import Registry, RepoEntry
from tests.integration.cli.conftest import Cli
from tests.programs import require

BIN = Path(sys.executable).parent
PATIENCE_S = 30.0
PROMPT = "ready> "
START = {"bash": ["--noprofile", "-i"], "zsh": ["-i"]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A person's home, with a repository registered and nothing of the system's own zsh set-up."""
    Registry(Home(tmp_path / ".codebutler").ensure()).update(
        lambda _: (RepoEntry(name="shopfront", path=str(tmp_path)),)
    )
    (tmp_path / ".bashrc").write_text(f"PS1='{PROMPT}'\nbind 'set bell-style none'")
    (tmp_path / ".zshrc").write_text(f"PS1='{PROMPT}'\nunsetopt zle_bracketed_paste prompt_sp\n")
    return tmp_path


def env_of(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CODEBUTLER")}
    return {
        **kept,
        "HOME": str(home),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "TERM": "dumb",
        "COLUMNS": "200",
    }


def install(home: Path, shell: str) -> str:
    done = subprocess.run(
        ["codebutler", "completion", shell, "--install"],
        env=env_of(home), executable=BIN / "codebutler", capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("shell", START)
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("codebutler remo", "codebutler remove-repo "),
        ("codebutler trust sh", "codebutler trust shopfront "),
        ("codebutler demo --agent re", "codebutler demo --agent rehearsal "),
        ("codebutler config set native.maxU", "codebutler config set native.maxUsd "),
        ("codebutler send shopfront /sta", "codebutler send shopfront /status "),
        ("codebutler migrate /usr/sha", "codebutler migrate /usr/share/"),
    ],
)
def test_tab_completes(home: Path, shell: str, typed: str, completed: str) -> None:
    install(home, shell)
    program = require(shell)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(program), *START[shell]],
        stdin=theirs, stdout=theirs, stderr=theirs, env=env_of(home), start_new_session=True, cwd=home,
    )  # fmt: skip
    os.close(theirs)
    try:
        shown = until(ours, PROMPT, "")
        os.write(ours, typed.encode() + b"\t")
        until(ours, completed, shown[len(shown) :])
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_fish_completes(home: Path) -> None:
    install(home, "fish")
    fish = require("fish")
    for typed, found in (
        ("codebutler trust sh", "shopfront\n"),
        ("codebutler migrate /usr/sha", "/usr/share/\n"),
        ("codebutler remo", "remove-repo\tStop serving"),
    ):
        said = subprocess.run(
            [fish, "-c", f'complete -C "{typed}"'],
            env=env_of(home),
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout.startswith(found)


@pytest.mark.parametrize("shell", START)
def test_installing_again_adds_nothing(home: Path, shell: str) -> None:
    before = (home / f".{shell}rc").read_text()
    assert f".{shell}rc" in install(home, shell)
    once = (home / f".{shell}rc").read_text()
    assert once.startswith(before)
    install(home, shell)
    assert (home / f".{shell}rc").read_text() == once


def test_a_script_is_printed_for_the_shell_that_is_named_or_used(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("completion", "zsh").out == SCRIPTS["zsh"]
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert cli("completion").out == SCRIPTS["fish"]
    monkeypatch.setenv("SHELL", "/usr/bin/tcsh")
    cli.fails("completion", code=1, said="no completion for tcsh: choose one of bash, zsh, fish")


def test_a_shell_that_asks_runs_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_CODEBUTLER_COMPLETE", "1")
    result = cli("config", "set", "agent.default", "native")
    assert not cli.home.root.exists()
    assert result.code == 0


def until(screen: int, text: str, shown: str) -> str:
    """What the terminal shows until ``text`` is in it."""
    end_s = time.monotonic() + PATIENCE_S
    while text not in shown:
        ready, _, _ = select.select([screen], [], [], max(0.0, end_s - time.monotonic()))
        assert ready, shown
        shown += os.read(screen, 4096).decode(errors="replace")
    return shown
