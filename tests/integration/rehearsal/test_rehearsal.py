"""The rehearsal agent at work in a real repository, without and with walls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import (
    AgentEvent,
    Answer,
    Approval,
    Finished,
    Plan,
    Question,
    Started,
    Text,
    ToolResult,
    ToolUse,
    TurnRequest,
    Usage,
)
from codebutler_worker.agents.rehearsal.backend import RehearsalBackend
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy
from codebutler_worker.sandbox.process import descendants
from tests.clock import ManualClock
from tests.turns import end, heard
from tests.walls import AsItIs, as_it_is, walled

LONG = "needle " + 293 * "x"


class KillsOneRead(AsItIs):
    """The ``which``th file that is read (from 1): the program is killed before it has said anything."""

    def __init__(self, which: int) -> None:
        super().__init__()
        self._left = which

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        self._left -= argv[0] == "cat"
        killed = self._left == 0 and argv[0] == "cat"
        return super().wrap(("sh", "-c", "kill -KILL $$") if killed else argv, policy)


@pytest.fixture(params=["none", "bwrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return as_it_is() if request.param == "none" else walled()


@pytest.fixture
def backend(sandbox: Sandbox, tmp_path: Path) -> RehearsalBackend:
    return RehearsalBackend(AgentContext(sandbox, SystemClock()), tmp_path / "home")


def turn(repo: Path, prompt: str, session_id: str | None = None, turn_id: str = "t1") -> TurnRequest:
    return TurnRequest(turn_id=turn_id, conversation="c", prompt=prompt, workdir=repo, session_id=session_id)


async def answer(backend: RehearsalBackend, repo: Path, prompt: str) -> str:
    last = end(await heard(backend, turn(repo, prompt)))
    assert last.ok, last.text
    return last.text


async def test_it_lists_reads_and_searches(backend: RehearsalBackend, git_repo: Path) -> None:
    listing = await answer(backend, git_repo, "list the files")
    assert "`README.md`" in listing
    assert "`src/app.py`" in listing
    assert ".git" not in listing
    assert "A sample repository." in await answer(backend, git_repo, "read README.md")
    assert "src/app.py:1:def greet(name):" in await answer(backend, git_repo, "search for greet in src")
    assert "not found" in await answer(backend, git_repo, "search for zebra")


async def test_what_is_too_much_is_not_counted_wrongly(backend: RehearsalBackend, git_repo: Path) -> None:
    # 1000 times 300 bytes: more than the 256 KiB that are read.
    (git_repo / "long.txt").write_text("\n".join([LONG] * 1000))
    assert "more lines at least" in await answer(backend, git_repo, "read long.txt")
    assert "lines at least** with `needle`" in await answer(backend, git_repo, "search for needle")
    many = git_repo / "many"
    many.mkdir()
    for number in range(1300):
        (many / f"{'x' * 200}{number:04}").touch()
    listing = await answer(backend, git_repo, "list the files")
    assert "files at least** here" in listing
    assert "more at least" in listing


async def test_it_edits(backend: RehearsalBackend, git_repo: Path) -> None:
    await answer(backend, git_repo, "create docs/new/hello.txt with Hello!")
    hello = git_repo / "docs" / "new" / "hello.txt"
    assert hello.read_text() == "Hello!\n"
    await answer(backend, git_repo, "append Hello again to docs/new/hello.txt")
    said = await answer(backend, git_repo, "replace Hello with Bye in docs/new/hello.txt")
    assert "```diff" in said
    assert "-Hello!\n-Hello again\n+Bye!\n+Bye again" in said
    assert hello.read_text() == "Bye!\nBye again\n"
    assert "?? docs/" in await answer(backend, git_repo, "git status")


@pytest.mark.parametrize(
    ("read", "why", "kept"),
    [(1, "exit code -9", ""), (2, "Added to `README.md`, but I could not read it again", "more\n")],
)
async def test_a_killed_read_makes_no_difference_up(
    tmp_path: Path, git_repo: Path, read: int, why: str, kept: str
) -> None:
    before = (git_repo / "README.md").read_text()
    backend = RehearsalBackend(AgentContext(KillsOneRead(read), SystemClock()), tmp_path / "home")
    last = end(await heard(backend, turn(git_repo, "append more to README.md")))
    assert not last.ok
    assert why in last.text
    assert "```" not in last.text
    assert (git_repo / "README.md").read_text() == before + kept


async def test_it_shows_diff_and_log(backend: RehearsalBackend, git_repo: Path) -> None:
    assert "Nothing has changed" in await answer(backend, git_repo, "git diff")
    await answer(backend, git_repo, "replace Sample with Example in README.md")
    assert "+# Example" in await answer(backend, git_repo, "git diff")
    assert "Start" in await answer(backend, git_repo, "git log")


async def test_its_events_are_those_of_an_agent(backend: RehearsalBackend, git_repo: Path) -> None:
    events = await heard(backend, turn(git_repo, "read README.md"))
    assert [type(event) for event in events] == [Started, ToolUse, ToolResult, Text, Usage, Finished]
    assert end(events).usage.turns == 2


async def test_several_requests_have_a_plan(backend: RehearsalBackend, git_repo: Path) -> None:
    events = await heard(backend, turn(git_repo, "list the files\n\nread README.md"))
    plans = [[step.state for step in event.steps] for event in events if isinstance(event, Plan)]
    assert plans == [["in_progress", "pending"], ["done", "in_progress"], ["done", "done"]]


@pytest.mark.parametrize("prompt", ["please fix all bugs", "list the files\n\nplease fix all bugs"])
async def test_what_it_does_not_understand_fails_and_says_how_to_get_a_real_agent(
    backend: RehearsalBackend, git_repo: Path, prompt: str
) -> None:
    last = end(await heard(backend, turn(git_repo, prompt)))
    assert not last.ok
    assert "I did not understand “please fix all bugs”" in last.text
    assert "a script without a model" in last.text
    assert "codebutler demo --agent claude" in last.text


async def test_it_says_what_it_is(backend: RehearsalBackend, git_repo: Path) -> None:
    assert "rehearsal agent" in await answer(backend, git_repo, "list the files")
    said = await answer(backend, git_repo, "help")
    assert "offline" in said
    assert said.count("rehearsal agent") == 1


def allowing(allow: bool, text: str = "") -> Callable[[AgentEvent], Answer]:
    return lambda _asked: Answer(allow, text)


async def test_it_asks_before_it_deletes(backend: RehearsalBackend, git_repo: Path) -> None:
    readme = git_repo / "README.md"
    prompt = turn(git_repo, "delete README.md")
    events = await heard(backend, prompt, allowing(False, "still needed"))
    asked = [event for event in events if isinstance(event, Approval)]
    assert [event.input for event in asked] == [{"command": "rm README.md"}]
    assert "(still needed)" in end(events).text
    assert readme.exists()
    last = end(await heard(backend, prompt, allowing(True)))
    assert "-A sample repository." in last.text
    assert not readme.exists()
    events = await heard(backend, prompt, allowing(True))
    assert not any(isinstance(event, Approval) for event in events)
    assert "There is no file README.md" in end(events).text
    assert not end(events).ok


async def test_it_asks_which_language(backend: RehearsalBackend, git_repo: Path) -> None:
    prompt = turn(git_repo, "add a .gitignore")
    events = await heard(backend, prompt, allowing(True, "Python"))
    assert [event.options for event in events if isinstance(event, Question)] == [
        ("Python", "Node", "Go", "Rust")
    ]
    assert "+__pycache__/" in end(events).text
    assert "__pycache__/" in (git_repo / ".gitignore").read_text()
    last = end(await heard(backend, prompt, allowing(True, "Klingon")))
    assert not last.ok
    assert "Klingon" in last.text
    last = end(await heard(backend, prompt, allowing(False)))
    assert "no `.gitignore`" in last.text


async def test_a_review_follows_a_plan_at_a_pace_that_people_can_see(
    sandbox: Sandbox, tmp_path: Path, git_repo: Path
) -> None:
    clock = ManualClock()
    backend = RehearsalBackend(AgentContext(sandbox, clock), tmp_path / "home")
    running = asyncio.create_task(heard(backend, turn(git_repo, "review this repository")))
    async with asyncio.timeout(30):
        while not running.done():
            await clock.advance(2)
    events = running.result()
    plans = [[step.state for step in event.steps] for event in events if isinstance(event, Plan)]
    assert len(plans) == 5
    assert plans[0] == ["in_progress", "pending", "pending", "pending"]
    assert plans[-1] == ["done"] * 4
    assert "`README.md`" in end(events).text
    assert clock.monotonic() >= 4 * 2


async def test_a_failed_tool_fails_the_turn(backend: RehearsalBackend, git_repo: Path) -> None:
    events = await heard(backend, turn(git_repo, "read missing.txt"))
    assert not end(events).ok
    assert end(events).reason == "failed"
    assert "missing.txt" in end(events).text
    assert [event.ok for event in events if isinstance(event, ToolResult)] == [False]


@pytest.mark.parametrize(
    "prompt", ["read ../secret", "create ../secret with x", "read link", "create link with x"]
)
async def test_it_stays_in_the_repository(backend: RehearsalBackend, git_repo: Path, prompt: str) -> None:
    secret = git_repo.parent / "secret"
    secret.write_text("the secret")
    (git_repo / "link").symlink_to(secret)
    last = end(await heard(backend, turn(git_repo, prompt)))
    assert "the secret" not in last.text
    assert secret.read_text() == "the secret"


async def test_a_session_is_remembered(backend: RehearsalBackend, git_repo: Path) -> None:
    first = await heard(backend, turn(git_repo, "list the files"))
    assert isinstance(first[0], Started)
    assert not first[0].fresh
    again = await heard(backend, turn(git_repo, "what did I say?", first[0].session_id))
    assert again[0] == Started(first[0].session_id)
    assert "list the files" in end(again).text
    assert "rehearsal agent" not in end(again).text


async def test_a_session_of_somebody_else_is_a_fresh_one(backend: RehearsalBackend, git_repo: Path) -> None:
    events = await heard(backend, turn(git_repo, "help", "0198f0aa-0000-7000-8000-000000000000"))
    assert isinstance(events[0], Started)
    assert events[0].fresh


async def test_stop_ends_a_running_program(backend: RehearsalBackend, git_repo: Path) -> None:
    before = (await descendants(os.getpid())).keys()
    async with asyncio.timeout(20):
        running = asyncio.create_task(heard(backend, turn(git_repo, "wait 500 seconds")))
        while not (programs := (await descendants(os.getpid())).keys() - before):
            pass
        await backend.stop("t1")
        assert end(await running).reason == "stopped"
    assert not programs & (await descendants(os.getpid())).keys()


async def test_stop_ends_a_program_that_only_starts(backend: RehearsalBackend, git_repo: Path) -> None:
    events: list[AgentEvent] = []
    async with asyncio.timeout(20):
        async for event in backend.start(turn(git_repo, "wait 500 seconds")):
            events.append(event)
            if isinstance(event, ToolUse):
                await backend.stop("t1")
    assert end(events).reason == "stopped"


async def test_closing_the_stream_ends_the_turn(backend: RehearsalBackend, git_repo: Path) -> None:
    stream = backend.start(turn(git_repo, "wait 500 seconds"))

    async def consume() -> None:
        async for _ in stream:
            used.set()

    used = asyncio.Event()
    consumer = asyncio.create_task(consume())
    async with asyncio.timeout(10):
        await used.wait()
        consumer.cancel()
        await asyncio.gather(consumer, return_exceptions=True)
    assert not await backend.answer("t1", "any", Answer(True))


async def test_without_walls_to_stand_behind_nothing_runs(sandbox: Sandbox, tmp_path: Path) -> None:
    backend = RehearsalBackend(AgentContext(sandbox, SystemClock()), tmp_path / "home")
    last = end(await heard(backend, turn(tmp_path / "gone", "list the files")))
    assert (last.ok, last.reason) == (False, "unavailable")
