"""The documentation, run: every console block that can be, and every output that a page shows, beside the real one.

A block without ``$`` is what a reader types; all of it is run, line by line, in one shell. In a block with ``$`` the
other lines are what is answered: ``…`` stands for what differs from time to time, alone in a line for any lines.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.house import DEADLINE_S, House, command, house
from tests.programs import require
from tests.screen import ENTER, screen
from tests.telegram.server import GROUP, TOKEN, BotServer
from tests.unit.docs.pages import PAGES, Block, blocks

# What is not run here, and what holds it instead.
HELD = {
    "make ": "tests/e2e/test_tutorial.py and tests/integration/test_makefile.py; the rest is these tests",
    "pipx install": "tests/wheel/check.py",
    "pipx upgrade": "tests/e2e/test_restart.py",
    "codebutler install": "tests/e2e/test_service.py",
    "codebutler gateway": "tests/e2e/test_cluster.py",
    "codebutler cluster": "tests/integration/cli/test_cluster_command.py",
    "codebutler host": "tests/e2e/test_cluster.py",
    "nats-server": "tests/e2e/test_cluster.py",
    "codebutler sandbox build": "tests/integration/sandbox/test_docker.py",
    "debootstrap": "tests/dockerd.py",
    "tar -C": "tests/dockerd.py",
    "mv store.db": "tests/e2e/test_disk.py",
}
CONSOLE = [block for page in PAGES for block in blocks(page) if block.language == "console"]
SESSIONS = [block for block in CONSOLE if "$ " in block.text]
TYPED = [
    block
    for block in CONSOLE
    if block not in SESSIONS and not any(line.startswith(tuple(HELD)) for line in block.commands)
]
# `supervise` runs until it is up, and is ended then.
SHELL = """\
set -eo pipefail
supervise() {
    command codebutler supervise > "$HOME/supervise.out" 2>&1 < /dev/null & local pid=$!
    until command codebutler status > /dev/null 2>&1; do kill -0 $pid; done
    kill -TERM $pid; wait $pid
}
codebutler() { if [ "$1" = supervise ]; then supervise; else command codebutler "$@"; fi; }
# Where root runs the tests, what is cloned is an ordinary user's, too.
git() { command git "$@"; [ "$1" != clone ] || [ $EUID != 0 ] || chown -R 1000:1000 "${@: -1}"; }
"""


@asynccontextmanager
async def readers_machine(tmp_path: Path, git_repo: Path) -> AsyncIterator[tuple[House, dict[str, str]]]:
    """A home with the repositories of the pages, and an embedded workspace and a Bot API server in the chats' place."""
    extra = {
        "BROWSER": "true",
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    async with BotServer() as telegram, house(tmp_path, "shop", extra_env=extra) as built:
        built.env["TELEGRAM_API_URL"] = telegram.url
        for name in ("my-repo", "codebutler", "shop"):
            clone(git_repo, tmp_path / "src" / name)
            built.repositories.append(tmp_path / "src" / name)
        built.hand_over()
        # Where root runs the tests it reads what is an ordinary user's.
        (tmp_path / ".gitconfig").write_text(
            "[safe]\n\tdirectory = *\n[user]\n\tname = Ada\n\temail = ada@example.com\n"
        )
        yield built, built.env


def clone(repo: Path, to: Path) -> None:
    subprocess.run(["git", "clone", "-q", repo, to], check=True)


def filled(text: str, built: House) -> str:
    """With what stands for a value replaced by one of this machine."""
    person = built.workspace.workspace.person.id
    for wanted, real in {
        "xoxb-…": built.workspace.bot_token,
        "xapp-…": built.workspace.app_token,
        "U0123ABCD": person,
        "ada@example.com": person,
        "123456789:AA…": TOKEN,
        "--telegram -1001234567890": f"--telegram {GROUP}",
        "UYOU0000000": person,
        "http://127.0.0.1:PORT/api/": built.workspace.api_url,
        "~/.codebutler-rehearsal": "~/own",  # a socket's path is short
        "/tmp/my-repo": str(built.home.parent / "copy" / "my-repo"),
        "--channel my-repo": "--channel shop",
    }.items():
        text = text.replace(wanted, real)
    return text


@pytest.mark.parametrize("block", TYPED, ids=lambda block: block.name)
async def test_what_a_page_tells_to_type_works(tmp_path: Path, git_repo: Path, block: Block) -> None:
    async with readers_machine(tmp_path, git_repo) as (built, env):
        if "shop" in block.text or "dashboard" in block.text:
            await serve(built)
        script = ("bash", "-c", SHELL + filled("\n".join(block.commands), built))
        cwd = tmp_path / "src" / "shop"
        done = await asyncio.create_subprocess_exec(
            *script,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(done.communicate(), DEADLINE_S)
        assert done.returncode == 0, said.decode()


@pytest.mark.parametrize("block", SESSIONS, ids=lambda block: block.name)
async def test_what_a_page_shows_is_what_is_answered(tmp_path: Path, git_repo: Path, block: Block) -> None:
    async with readers_machine(tmp_path, git_repo) as (built, env):
        if "telegram" in block.text:
            env["TELEGRAM_BOT_TOKEN"] = TOKEN
        await serve(built)
        if "telegram" in block.text:
            await built.until_status(lambda status: status["telegram"]["state"] == "connected")
        for step in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            line, _, expected = step.partition("\n")
            if line == "codebutler chat":
                await chatted(env, expected)
                continue
            done = await asyncio.create_subprocess_shell(
                filled(line, built), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )  # fmt: skip
            said, _ = await asyncio.wait_for(done.communicate(), DEADLINE_S)
            assert agrees(expected, said.decode()), f"{line}\n{said.decode()}"


async def serve(built: House) -> None:
    """The shop's repository, answered in by the offline agent."""
    require("bwrap")
    await built.add_repo(built.repositories[-1], "shop", agent={"default": "rehearsal"})
    await built.supervise()


async def chatted(env: dict[str, str], shown: str) -> None:
    """A chat at a terminal: what stands after the prompt is typed, and the screen then shows what the page shows."""
    async with screen(command("chat"), env, columns=200) as terminal:
        await terminal.ready()
        for typed in re.findall(r"^you> (.+)$", shown, re.MULTILINE):
            terminal.type(typed + ENTER)
        await terminal._holds(lambda: agrees(shown, terminal.text), f"what the page shows:\n{shown}")


def agrees(expected: str, said: str) -> bool:
    """Whether the output is the one that is shown."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r" *\n"
        for line in expected.rstrip().splitlines()
    )
    return re.fullmatch(pattern, said.rstrip() + "\n") is not None


def test_a_difference_would_be_seen() -> None:
    assert agrees("a … c\n…\nend", "a b c\nx\ny\nend\n")
    assert not agrees("a … c\nend", "a b c\nx\nend\n")
    assert not agrees("ok 3", "ok 4\n")
