"""A newcomer's first change, in a copy of the source: an entry in the table and a handler, for each process. Then the
commands are in `!help`, completion, the Slack app and the docs, and they work.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from sysconfig import get_path

from codebutler.cli import COMPLETION_VARIABLE
from tests.commands import output_of
from tests.e2e.house import House, house
from tests.e2e.test_matrix import rehearsal

SOURCE = Path(__file__).parents[2]
TABLE = "codebutler/domain/commands.py"
ENTRIES = """ALL = (
    Word("uptime", "show how long the worker has been up", aliases=("up",)),
    Word("age", "show how long CodeButler has been up", "[UNIT]", "(hours|days)?", runs="parent"),
"""
HANDLERS = {
    "workers/codebutler_worker/commands/uptime.py": """
import os

from codebutler_worker.commands.table import Invocation
from codebutler_worker.runtime.turns import Todo


def run(invocation: Invocation) -> Todo:
    return invocation.reply(f"Worker {os.getpid()} is up.")
""",
    "codebutler/parent/commands/age.py": """
from codebutler.parent.commands.asked import Asked


async def run(asked: Asked) -> str:
    age = asked.resources.clock.now() - asked.resources.since
    return f"{asked.argument or 'seconds'}, up since {age.total_seconds():.0f} s ago, says {asked.asker.user}"
""",
}
SHOWN = (
    "from codebutler.domain.command_help import as_table; "
    "from codebutler.cli.chatroom.conversation import completion_words; "
    "print(as_table(), *completion_words())"
)


async def changed_copy(tmp_path: Path, changes: Mapping[str, Sequence[str]], files: Mapping[str, str]) -> str:
    """An interpreter that finds a copy with ``files`` more, and then what this one has installed. ``changes``: by file
    the texts to be replaced, each before what replaces it."""
    place = tmp_path / "copy"
    for name in ("codebutler", "workers", "migrations"):
        shutil.copytree(SOURCE / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, texts in changes.items():
        text = (place / name).read_text()
        for before, after in zip(texts[::2], texts[1::2], strict=True):
            assert before in text
            text = text.replace(before, after, 1)
        (place / name).write_text(text)
    for name, text in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    await output_of(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"), env={})
    (installed,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    found = (place, place / "workers", place / "migrations", get_path("purelib"))
    (installed / "copy.pth").write_text("".join(f"{each}\n" for each in found))
    return str(tmp_path / "venv" / "bin" / "python")


async def test_two_commands_are_added(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        python = await changed_copy(tmp_path, {TABLE: ("ALL = (\n", ENTRIES)}, HANDLERS)
        built.prefix = ("sh", "-c", 'shift; exec "$0" "$@"', python)
        channel = await rehearsal(built, git_repo)
        root = await built.say(channel, "!help")
        told = await built.answer(channel, root, "Commands:")
        assert "`!uptime`  show how long the worker" in told["text"]
        assert "`!age [UNIT]`  show how long" in told["text"]
        assert "also `!up`" in (await said(built, channel, "!help uptime", "show how long")).lower()
        for text, answer in {
            "!uptime": "is up.",
            "!up": "is up.",
            "!uptime now": "`!uptime` takes no argument",
            "!age": "seconds, up since",
            "/butler age days": "days, up since",
            "!age minutes": "Usage: `!age [UNIT]`",
            "!uptme": "Did you mean `!uptime`?",
        }.items():
            assert answer in await said(built, channel, text, answer)
        assert "uptime" in await built.run("manifest")
        shown = await output_of(python, "-I", "-c", SHOWN, env=built.env)
        assert {"!uptime", "!up", "!age"} <= set(shown.split())
        assert "| `!uptime` | Show how long the worker has been up. Also `!up`. |" in shown
        built.env[COMPLETION_VARIABLE] = "1"
        assert (await built.run("send", "sample", "!up")).split("\t")[0] == "!uptime"


async def said(built: House, channel: str, text: str, answer: str) -> str:
    """What is answered to it in its thread."""
    return str((await built.answer(channel, await built.say(channel, text), answer))["text"])
