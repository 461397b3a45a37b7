"""Where programs are looked for: real shells asked, with files of their own in a home of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from codebutler.config.paths import Home
from codebutler.platform.lookup import ask_shell, find_search_path, join_paths, save_search_path, saved_path
from tests.programs import require

BARE = "/usr/bin:/bin"
# Where each shell reads what a person set, and in which words.
SHELLS = {
    "bash": (".bashrc", "case $- in *i*) ;; *) return;; esac\nexport PATH=$HOME/mine:$PATH\n"),
    "zsh": (".zshrc", "export PATH=$HOME/mine:$PATH\n"),
    "fish": (".config/fish/config.fish", "set -gx PATH $HOME/mine $PATH\n"),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "owner"
    home.mkdir(mode=0o700)
    # A login shell of bash reads .bashrc because the system's own .profile does so.
    (home / ".profile").write_text('. "$HOME/.bashrc"\n')
    (home / ".bashrc").write_text("")
    return home


def env_of(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": BARE, "SLACK_BOT_TOKEN": "xoxb-secret"}


@pytest.mark.parametrize("name", SHELLS)
async def test_what_a_shell_sets_for_its_owner_is_found(home: Path, name: str) -> None:
    file, text = SHELLS[name]
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(text)
    found = await find_search_path(env_of(home), require(name))
    assert found.startswith(BARE)
    assert f"{home}/mine" in found.split(os.pathsep)


async def test_what_the_shells_files_print_start_and_see_does_no_harm(home: Path) -> None:
    seen = home / "seen"
    (home / ".bashrc").write_text(
        f"echo welcome; printf 'no line end'; env > {seen}; echo oops >&2\n"
        "(sleep 600 &)\nexport PATH=/opt/told:not/absolute:$PATH\n"
    )
    began_s = time.monotonic()
    assert (await ask_shell(require("bash"), env_of(home))).startswith("/opt/told:")
    assert time.monotonic() - began_s < 600
    assert "xoxb-secret" not in seen.read_text()
    assert "CODEBUTLER_ASKS_FOR_PATH=1" in seen.read_text()


@pytest.mark.parametrize("text", ["sleep 600\n", "exit 3\n", "exec cat /dev/zero\n"])
async def test_a_shell_that_does_not_answer_leaves_what_there_was(home: Path, text: str) -> None:
    (home / ".bashrc").write_text(text)
    assert await ask_shell(require("bash"), env_of(home), limit_s=0.5) == ""


async def test_a_shell_that_is_none_leaves_what_there_was(home: Path) -> None:
    assert await ask_shell(Path("/usr/sbin/nologin"), env_of(home)) == ""
    assert await ask_shell(home / "absent", env_of(home)) == ""


async def test_nobody_elses_files_are_run(home: Path) -> None:
    (home / ".bashrc").write_text(f"touch {home}/ran; export PATH=/opt/evil:$PATH\n")
    home.chmod(0o777)
    assert await find_search_path(env_of(home), require("bash")) == BARE
    home.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(home, 1000, 1000)
        assert await find_search_path(env_of(home), require("bash")) == BARE
    assert not (home / "ran").exists()


async def test_the_supervisors_is_noted_and_serves_when_the_shell_is_silent(home: Path) -> None:
    place = Home(home / ".codebutler").ensure()
    bash = require("bash")
    (home / ".bashrc").write_text("export PATH=/opt/told:$PATH\n")
    found = await save_search_path(place.root, env_of(home), bash)
    assert saved_path(place.root) == found
    (home / ".bashrc").write_text("exit 1\n")
    assert await save_search_path(place.root, env_of(home), bash) == found


def test_only_what_is_new_and_absolute_is_added() -> None:
    assert join_paths("/a:/b", "/b:rel::/c", "/c:/d") == "/a:/b:/c:/d"
    assert join_paths(".:/a", "") == ".:/a"
