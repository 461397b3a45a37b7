"""The native agent at CodeButler's own source: it finds its way, changes itself, breaks a test of its own by that,
mends what the test wants, and runs it again; all behind real walls. The model's part is scripted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler_worker.agents.native.model import ModelReply, ModelRequest, ToolMessage
from codebutler_worker.sandbox.port import SandboxPolicy
from codebutler_worker.tools.programs import tool_policy
from tests.integration.native.conftest import PATH, Studio, says
from tests.integration.native.tasks import do, edit, read, run, search
from tests.turns import end
from tests.walls import walled

SOURCE = Path(__file__).parents[3]
COPIED = ("AGENTS.md", "pyproject.toml", "codebutler", "docs", "tests", "workers")
GIST, BETTER = "check that CodeButler answers", "check that CodeButler is awake"
TEST = "python -m pytest -q -p no:cacheprovider tests/unit/test_words.py"
HIDDEN = (
    "from codebutler.domain.command_help import as_table; from codebutler.domain.commands import WORDS; "
    "print(WORDS['ping'].gist, as_table().count('At home'))"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of our own source with a history of its own."""
    copy = tmp_path / "codebutler"
    left_out = shutil.ignore_patterns("__pycache__", "node_modules", "e2e", "integration")
    copy.mkdir()
    for name in COPIED:
        if (SOURCE / name).is_dir():
            shutil.copytree(SOURCE / name, copy / name, ignore=left_out)
        else:
            shutil.copy(SOURCE / name, copy / name)
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "Start"]):
        subprocess.run(["git", *identity, *arguments], cwd=copy, check=True)
    (copy / ".codebutler").mkdir()
    return copy


def with_our_python(studio: Studio) -> SandboxPolicy:
    """The walls of the agent's tools, with the interpreter and the packages that these tests run on inside."""
    path = f"{sys.prefix}/bin:{PATH}"
    policy = tool_policy(studio.repo, studio.home, path, {}, "C1:1.0")
    env = {**policy.env, "PYTHONPATH": ".:workers", "PYTHONDONTWRITEBYTECODE": "1"}
    return replace(policy, env=env, readable=(Path(sys.prefix), Path(sys.base_prefix)))


def orientation(prompt: ModelRequest) -> ModelReply:
    """The agent knows from the beginning that this is itself, and has the map."""
    orders = prompt.messages[0].content
    assert "you may change yourself there" in orders
    assert "`codebutler/domain/commands.py`" in orders
    assert "-m pytest" in orders
    return do(("add_subgoal", {"text": "reword !ping"}), search(GIST))


def hidden(place: Path) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", HIDDEN], cwd=place, capture_output=True, text=True, check=True
    )
    return ran.stdout


async def test_it_changes_itself_and_its_own_tests_agree(tmp_path: Path, checkout: Path) -> None:
    (tmp_path / "home").mkdir()
    studio = Studio(checkout, tmp_path / "home", sandbox=walled())
    studio.policy = with_our_python
    events = await studio.run(
        "Say it more kindly: !ping asks whether anybody is at home.",
        orientation,
        do(read("codebutler/domain/commands.py")),
        do(edit("codebutler/domain/commands.py", GIST, BETTER), text="I reword it and run its tests."),
        do(run(TEST)),
        do(search("Check that CodeButler answers")),
        do(edit("docs/reference/chat.md", "Check that CodeButler answers", "Check that CodeButler is awake")),
        do(run(f"{TEST} && git diff --stat"), ("update_subgoal", {"number": 1, "state": "done"})),
        says("It is kinder now; the reference page says the same."),
    )
    assert end(events).ok, end(events)
    told = [
        message.content for message in studio.model.asked[-1].messages if isinstance(message, ToolMessage)
    ]
    failed, passed = (text for text in told if "test_words" in text or " passed" in text)
    assert "test_the_reference_page_has_the_table_as_it_is" in failed
    assert "1 failed" in failed
    assert "2 files changed" in passed
    assert "failed" not in passed
    # What the model never saw asked: the copy says so when it runs, and the source it was copied from does not.
    assert BETTER in hidden(checkout)
    assert GIST in hidden(SOURCE)
    await studio.agent().close()
