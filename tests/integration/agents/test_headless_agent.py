"""Programs that take a prompt and print an answer, as agents."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from codebutler.config.schema import CommandRule
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import AgentEvent, Finished, Started, Text, TurnRequest
from codebutler_worker.agents.headless import ANSWER_CHARS, SPOKEN_CHARS, HeadlessBackend
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.session_logs import SESSIONS, SessionLogs
from codebutler_worker.agents.survey import Surroundings
from codebutler_worker.store.opening import prepare_state_dir
from tests.e2e.test_sessions import running
from tests.modelserver.server import ModelServer, Reply
from tests.programs import path_with_node, require
from tests.turns import end
from tests.walls import as_it_is, walled

DEADLINE_S = 60.0
TURN = "0123456789abcdef"
TELL = "import json, sys; print(json.dumps([sys.argv[1:], sys.stdin.read()]))"


def backend_of(
    repo: Path, binary: str, *args: str, envelope: bool = False, limit_s: float = 600
) -> HeadlessBackend:
    prepare_state_dir(repo)
    rule = CommandRule(prefix="ai", binary=binary, args=args, mode="headless", envelope=envelope)
    around = Surroundings(repo.parent, "/usr/local/bin:/usr/bin:/bin")
    context = AgentContext(as_it_is(), SystemClock(), logs=SessionLogs(repo, 30))
    return HeadlessBackend(rule, context, around, limit_s)


async def turn(backend: HeadlessBackend, repo: Path, prompt: str, session_id: str = "") -> list[AgentEvent]:
    request = TurnRequest(
        turn_id=TURN,
        conversation="C1:5.5",
        prompt=prompt,
        workdir=repo,
        session_id=session_id or None,
        session_name="" if session_id else "chat-C1-5.5",
        system_prompt="Mark what matters.",
    )
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in backend.start(request)]


async def told(repo: Path, prompt: str, *args: str, session_id: str = "") -> tuple[list[str], str, str]:
    """(its arguments, its standard input, the session it was given), from a program that tells them."""
    events = await turn(backend_of(repo, "python3", "-c", TELL, *args), repo, prompt, session_id)
    arguments, stdin = json.loads(end(events).text)
    (started,) = (event for event in events if isinstance(event, Started))
    return arguments, stdin, started.session_id


async def test_what_it_prints_is_the_answer(git_repo: Path) -> None:
    script = r"""echo thinking >&2; printf 'One \033[31mred\033[0m line\r\nand '; sleep 0.2; echo "$1"; cat"""
    events = await turn(backend_of(git_repo, "bash", "-c", script, "x"), git_repo, "the prompt")
    assert end(events) == Finished(ok=True, text="One red line\nand the prompt", reason="done")
    assert [event.text for event in events if isinstance(event, Text)] == [
        "One red line\n",
        "and the prompt\n",
    ]
    log = (git_repo / SESSIONS / "01234567.log").read_bytes()
    assert b"thinking\n" in log
    assert b"\x1b[31mred" in log
    assert b" status=done " in log


async def test_a_flood_is_recorded_whole_and_its_end_is_the_answer(git_repo: Path) -> None:
    events = await turn(backend_of(git_repo, "bash", "-c", "seq -w 1 300000"), git_repo, "x")
    text = end(events).text
    assert text.endswith("\n299999\n300000")
    assert ANSWER_CHARS - 10 <= len(text) <= ANSWER_CHARS + 10
    assert sum(len(event.text) for event in events if isinstance(event, Text)) <= SPOKEN_CHARS
    log = (git_repo / SESSIONS / "01234567.log").read_bytes()
    assert log.count(b"\n", 0, 2_100_000) == 300_000


async def test_where_the_prompt_goes(git_repo: Path) -> None:
    assert await told(git_repo, "hello", "--print") == (["--print", "hello"], "", "")
    assert await told(git_repo, "hello", "-p", "{prompt}", "--quiet") == (["-p", "hello", "--quiet"], "", "")
    assert await told(git_repo, "hello", "--print", "-") == (["--print", "-"], "hello\n", "")
    long = "x" * 200_000
    assert (await told(git_repo, long, "-"))[1] == f"{long}\n"


async def test_words_become_no_option_and_no_place(git_repo: Path) -> None:
    assert (await told(git_repo, "--help"))[0] == [" --help"]
    assert (await told(git_repo, "say {session} {prompt}\0", "-p", "{prompt}"))[0] == [
        "-p",
        "say {session} {prompt}",
    ]


async def test_it_is_told_which_conversation_it_goes_on_with(git_repo: Path) -> None:
    uuid = str(uuid5(NAMESPACE_URL, "chat-C1-5.5"))
    first = await told(git_repo, "x", "-S", "{session}", "--id={sessionUuid}", "{prompt}")
    assert first == (["-S", "chat-C1-5.5", f"--id={uuid}", "x"], "", "chat-C1-5.5")
    later = await told(git_repo, "x", "-S", "{session}", session_id="chat-C1-5.5")
    assert later == (["-S", "chat-C1-5.5", "x"], "", "chat-C1-5.5")


async def test_one_that_may_send_messages_is_taught_how(git_repo: Path) -> None:
    events = await turn(backend_of(git_repo, "printf", "%s", envelope=True), git_repo, "go")
    assert end(events).text == "Mark what matters.\n\ngo"


async def test_why_it_failed_is_its_last_complaint(git_repo: Path) -> None:
    script = "echo half; echo first >&2; echo 'no key: set IT' >&2; exit 4"
    ended = end(await turn(backend_of(git_repo, "bash", "-c", script), git_repo, "x"))
    assert (ended.ok, ended.reason) == (False, "failed")
    assert ended.text == "ai ended with exit code 4: no key: set IT"
    silent = end(await turn(backend_of(git_repo, "true"), git_repo, "x"))
    assert (silent.ok, silent.text) == (False, "ai ended with exit code 0: no output")


async def test_what_cannot_be_started_is_said(git_repo: Path) -> None:
    missing = end(await turn(backend_of(git_repo, "no-such-program"), git_repo, "x"))
    assert (missing.reason, "no-such-program is not installed" in missing.text) == ("unavailable", True)
    long = end(await turn(backend_of(git_repo, "echo"), git_repo, "x" * 200_000))
    assert (long.reason, "end with `-`" in long.text) == ("unavailable", True)


async def test_its_time_is_limited_and_nothing_outlives_it(git_repo: Path) -> None:
    marker = f"91{os.getpid()}"
    script = f"setsid sleep {marker} & echo begun; sleep {marker}"
    ended = end(await turn(backend_of(git_repo, "bash", "-c", script, limit_s=0.5), git_repo, "x"))
    assert (ended.ok, ended.reason) == (False, "timeout")
    assert running(marker) == []


async def test_what_it_left_behind_does_not_hold_up_the_answer(git_repo: Path) -> None:
    marker = f"92{os.getpid()}"
    script = f"setsid sleep {marker} & echo answered"
    ended = end(await turn(backend_of(git_repo, "bash", "-c", script), git_repo, "x"))
    assert (ended.ok, ended.text) == (True, "answered")
    assert running(marker) == []


async def test_a_stop_ends_it(git_repo: Path) -> None:
    backend = backend_of(git_repo, "bash", "-c", "trap '' TERM; echo begun; while :; do sleep 1; done")
    request = TurnRequest(turn_id=TURN, conversation="c", prompt="x", workdir=git_repo)
    async with asyncio.timeout(DEADLINE_S):
        events: list[AgentEvent] = []
        async for event in backend.start(request):
            events.append(event)
            if isinstance(event, Text):
                stopping = asyncio.create_task(backend.stop(TURN))
        await stopping
    assert end(events) == Finished(ok=False, text="Stopped.", reason="stopped")
    await backend.close()


async def test_a_real_one_with_its_settings_in_the_home(tmp_path: Path, git_repo: Path) -> None:
    binary, home = require("kimi"), tmp_path / "person"
    (home / ".kimi-code").mkdir(parents=True)
    async with ModelServer() as model:
        model.play(Reply("Hello from the model."))
        (home / ".kimi-code" / "config.toml").write_text(
            'default_model = "m"\ntelemetry = false\n'
            f'[providers.p]\ntype = "kimi"\nbase_url = "{model.url}/v1"\napi_key = "sk-dummy"\n'
            '[models.m]\nprovider = "p"\nmodel = "m"\nmax_context_size = 262144\n'
        )
        rule = CommandRule(
            prefix="kc",
            binary=str(binary),
            args=("-p", "{prompt}"),
            mode="headless",
            home_paths=(".kimi-code",),
        )
        context = AgentContext(walled(), SystemClock())
        backend = HeadlessBackend(rule, context, Surroundings(home, path_with_node()), 600)
        events = await turn(backend, git_repo, "say hello")
    assert end(events) == Finished(ok=True, text="• Hello from the model.", reason="done")
