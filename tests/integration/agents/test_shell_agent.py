"""Programs behind the agents' port: commands, sessions that people type into, and programs with envelopes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from codebutler.config.programs import RUN
from codebutler.config.schema import CommandRule
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import GONE, AgentEvent, Finished, Output, Text, TurnRequest
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.session_logs import SESSIONS, SessionLogs
from codebutler_worker.agents.shell import run as run_module
from codebutler_worker.agents.shell.backend import ShellBackend
from codebutler_worker.agents.shell.run import Pace
from codebutler_worker.agents.survey import Surroundings
from codebutler_worker.store.opening import prepare_state_dir
from tests.programs import require
from tests.walls import as_it_is

DEADLINE_S = 30.0
TURN = "0123456789abcdef"
PYTHON = CommandRule(prefix="py", binary="python3", args=("-i", "-q"), mode="interactive")
BASH = CommandRule(prefix="sh", binary="bash", args=("--norc", "-i"), mode="interactive")
BC = CommandRule(prefix="bc", binary="bc", args=("-q",), mode="interactive")


class Told:
    """Everything one turn tells, shown as its pages would be."""

    def __init__(self, backend: ShellBackend, repo: Path, prompt: str) -> None:
        self.backend = backend
        self.pages: list[list[str]] = [[]]
        self.live: tuple[str, ...] = ()
        self.notes: list[str] = []
        self.texts: list[str] = []
        self.finished: Finished | None = None
        self._news = asyncio.Event()
        request = TurnRequest(turn_id=TURN, conversation="c", prompt=prompt, workdir=repo)
        self._task = asyncio.create_task(self._listen(backend.start(request)), name="told")

    @property
    def page(self) -> list[str]:
        """The lines of the newest page."""
        return [*self.pages[-1], *self.live]

    async def until(self, line: str) -> None:
        """Wait until the newest page has the line."""
        await self._wait(lambda: line in self.page, line)

    async def until_shown(self, words: str, within_s: float = DEADLINE_S) -> None:
        """Wait until the words stand somewhere on the newest page."""
        await self._wait(lambda: any(words in line for line in self.page), words, within_s)

    async def until_noted(self, note: str) -> None:
        """Wait until it is said of the run."""
        await self._wait(lambda: note in self.notes, note)

    async def _wait(self, condition: Callable[[], bool], line: str, within_s: float = DEADLINE_S) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    await self._news.wait()
                    self._news.clear()
        except TimeoutError:
            raise AssertionError(f"{line!r} never came: {self.pages} {self.live}") from None

    async def end(self) -> Finished:
        async with asyncio.timeout(DEADLINE_S):
            await self._task
        assert self.finished is not None
        return self.finished

    async def _listen(self, events: AsyncIterator[AgentEvent]) -> None:
        async for event in events:
            match event:
                case Output(settled, live, fresh, note):
                    if fresh:
                        self.pages[-1] = self.page
                        self.pages.append([])
                    self.pages[-1] += settled
                    self.live = live
                    self.notes.append(note)
                case Text(text):
                    self.texts.append(text)
                case Finished():
                    self.finished = event
            self._news.set()


def backend_of(
    repo: Path, rule: CommandRule, pace: Pace | None = None, instructions: str = ""
) -> ShellBackend:
    prepare_state_dir(repo)
    around = Surroundings(repo.parent, "/usr/local/bin:/usr/bin:/bin", instructions=instructions)
    context = AgentContext(as_it_is(), SystemClock(), logs=SessionLogs(repo, 30))
    return ShellBackend(rule, context, around, pace or Pace(flush_s=0.3))


async def run(repo: Path, command: str, pace: Pace | None = None) -> Told:
    told = Told(backend_of(repo, RUN, pace), repo, command)
    await told.end()
    return told


async def test_a_command_shows_its_output_and_its_exit_code(git_repo: Path) -> None:
    told = await run(git_repo, "echo out; echo err >&2; exit 3")
    assert told.page == ["out", "err"]
    assert told.finished == Finished(ok=False, text="out\nerr", reason="failed", exit_code=3)


async def test_progress_bars_end_as_a_terminal_would_show_them(git_repo: Path) -> None:
    told = await run(
        git_repo, r"for i in 1 50 100; do printf '\r%s%%' $i; sleep 0.1; done; printf '\nready\n'"
    )
    assert told.page == ["100%", "ready"]


async def test_a_newline_is_no_return_where_the_program_said_so(git_repo: Path) -> None:
    told = await run(git_repo, r"stty -onlcr; printf 'one\ntwo\n'")
    assert told.page == ["one", "   two"]


async def test_much_output_comes_out_whole(git_repo: Path) -> None:
    told = await run(git_repo, "seq 1 5000")
    assert told.page == [str(number) for number in range(1, 5001)]


async def test_a_flood_is_skipped_in_the_middle_and_recorded_whole(git_repo: Path) -> None:
    told = await run(git_repo, "seq -w 1 3000000")
    assert told.page[0] == "0000001"
    assert told.page[-1] == "3000000"
    assert len(told.page) < 1_500_000
    log = (git_repo / SESSIONS / "01234567.log").read_bytes()
    written, _, last_line = log.partition(b"\n--- session 01234567 ended ")
    assert written == b"".join(b"%07d\n" % number for number in range(1, 3_000_001))
    assert b" bytes=24000000 " in last_line


async def test_a_pager_and_a_read_do_not_wait_for_anybody(git_repo: Path) -> None:
    told = await run(git_repo, "git log --oneline; cat; read x || echo no-input")
    assert told.finished is not None
    assert told.finished.exit_code is not None


async def test_a_command_that_asks_for_a_password_is_ended_and_says_why(git_repo: Path) -> None:
    told = await run(git_repo, "printf 'Password: '; python3 -c \"import getpass; getpass.getpass('')\"")
    assert told.finished is not None
    assert not told.finished.ok
    assert told.notes[-1] == run_module.ENDED_AT_PROMPT


async def test_git_opens_no_editor(git_repo: Path) -> None:
    told = await run(git_repo, "git -c user.name=a -c user.email=a@b commit --allow-empty")
    assert any("empty commit message" in line for line in told.page), told.page


async def test_a_command_that_waits_for_keys_is_said_to(git_repo: Path) -> None:
    backend = backend_of(git_repo, RUN, Pace(flush_s=0.1, keys_s=0.1))
    told = Told(backend, git_repo, "stty -icanon; head -c 100")
    await told.until_noted(run_module.WAITS_FOR_KEYS)
    await backend.stop(TURN)
    assert (await told.end()).reason == "stopped"
    told = Told(backend, git_repo, "sleep 2; echo done")
    await told.end()
    assert run_module.WAITS_FOR_KEYS not in told.notes


async def test_the_time_limit_ends_it(git_repo: Path) -> None:
    told = await run(git_repo, "echo begun; sleep 300", Pace(flush_s=0.3, limit_s=1.5))
    assert told.page == ["begun"]
    assert told.finished is not None
    assert told.finished.reason == "timeout"


async def test_a_program_that_is_missing_is_said_in_words(git_repo: Path) -> None:
    rule = CommandRule(prefix="x", binary="no-such-program-here")
    told = Told(backend_of(git_repo, rule), git_repo, "x")
    finished = await told.end()
    assert finished.reason == "unavailable"
    assert "no-such-program-here is not installed" in finished.text
    assert finished.exit_code is None


@pytest.mark.parametrize(
    ("rule", "first", "shown", "typed", "leave"),
    [
        (PYTHON, "print(6 * 6)", "36", "6 * 7", "exit()"),
        (BASH, "echo $((6 * 6))", "36", "echo $((6 * 7))", "exit"),
        (BC, "6 * 6", "36", "6 * 7", "quit"),
    ],
    ids=["python", "bash", "bc"],
)
async def test_a_session_takes_what_is_typed_and_answers_on_a_new_page(
    git_repo: Path, rule: CommandRule, first: str, shown: str, typed: str, leave: str
) -> None:
    if rule is BC:
        require("bc")
    told = Told(backend_of(git_repo, rule), git_repo, first)
    await told.until(shown)
    assert await told.backend.type(TURN, typed) == ""
    await told.until("42")
    assert len(told.pages) == 2
    assert await told.backend.type(TURN, leave) == ""
    finished = await told.end()
    assert (finished.ok, finished.reason, finished.exit_code) == (True, "done", 0)


async def test_the_first_stop_interrupts_and_the_second_ends(git_repo: Path) -> None:
    told = Told(backend_of(git_repo, PYTHON), git_repo, "print('up')")
    await told.until("up")
    await told.backend.type(TURN, "import time; print('deep'); time.sleep(300)")
    await told.until("deep")
    assert await told.backend.stop(TURN) is False
    await told.until("KeyboardInterrupt")
    assert await told.backend.type(TURN, "print('still ' + 'here')") == ""
    await told.until("still here")
    assert await told.backend.stop(TURN) is False
    assert await told.backend.stop(TURN) is True
    finished = await told.end()
    assert (finished.ok, finished.reason) == (False, "stopped")


async def test_a_full_screen_program_is_shown_as_it_draws(git_repo: Path) -> None:
    """curses moves down by a bare newline, which returns for nobody but a line of text."""
    script = (
        "import curses, time\n"
        "def main(screen):\n"
        "    screen.addstr(0, 0, 'top'); screen.addstr(2, 10, 'below'); screen.addstr(3, 15, 'right below')\n"
        "    screen.refresh(); screen.getch()\n"
        "curses.wrapper(main)\n"
    )
    (git_repo / "draw.py").write_text(script)
    told = Told(backend_of(git_repo, BASH), git_repo, "python3 draw.py")
    await told.until("               right below")
    assert [line for line in told.page if line][-3:] == [
        "top",
        "          below",
        "               right below",
    ]
    assert await told.backend.type(TURN, "x") == ""
    await told.backend.type(TURN, "echo b''ack")
    await told.until("back")
    await told.backend.type(TURN, "exit 0")
    await told.end()


@pytest.mark.parametrize(
    ("command", "prompt"),
    [
        ("read -s -p Secret: word; echo got=$word.", "Secret:"),
        ("python3 -c 'import getpass; getpass.getpass()'", "Password:"),
        ("openssl genrsa -aes256 2048", "Enter PEM pass phrase:"),
        ("read -p 'Password for x: ' word; echo got=$word.", "Password for x:"),
    ],
    ids=["bash", "python", "openssl", "with an echo"],
)
async def test_nothing_is_typed_into_a_password_prompt(git_repo: Path, command: str, prompt: str) -> None:
    if command.startswith("openssl"):
        require("openssl")
    told = Told(backend_of(git_repo, BASH), git_repo, "echo up")
    await told.until("up")
    await told.backend.type(TURN, command)
    await told.until(prompt)
    assert await told.backend.type(TURN, "hunter2hunter2") == run_module.NOT_TYPED
    assert await told.backend.stop(TURN) is False
    assert await told.backend.stop(TURN) is True
    await told.end()
    assert b"hunter2" not in (git_repo / SESSIONS / "01234567.log").read_bytes()


async def test_a_password_prompt_can_be_left_by_a_key(git_repo: Path) -> None:
    told = Told(backend_of(git_repo, PYTHON), git_repo, "import getpass; getpass.getpass()")
    await told.until("Password:")
    assert await told.backend.type(TURN, "^C") == ""
    await told.until("KeyboardInterrupt")
    assert await told.backend.type(TURN, "exit()") == ""
    assert (await told.end()).exit_code == 0


async def test_keys_can_be_named(git_repo: Path) -> None:
    told = Told(backend_of(git_repo, PYTHON), git_repo, "1 + 1")
    await told.until("2")
    assert await told.backend.type(TURN, "^D") == ""
    assert (await told.end()).exit_code == 0


async def test_a_line_that_a_terminal_cannot_take_is_refused_whole(git_repo: Path) -> None:
    rule = CommandRule(prefix="cat", binary="cat", mode="interactive")
    told = Told(backend_of(git_repo, rule), git_repo, "up")
    await told.until("up")
    assert await told.backend.type(TURN, "x" * 5000) == run_module.TOO_LONG
    assert await told.backend.type(TURN, "^D") == ""
    await told.end()


async def test_what_ended_takes_nothing(git_repo: Path) -> None:
    assert await backend_of(git_repo, BC).type(TURN, "1") == GONE


async def test_of_a_program_with_envelopes_only_those_are_told(git_repo: Path) -> None:
    script = r"""
    echo "reading files"; echo "$1"
    printf '\033[32m<<<SLACK:pro'; sleep 0.2; printf 'gress>>>\033[0mfound 3<<<end_slack>>>\n'
    echo '<<<SLACK:done>>>all is'; echo 'well'
    """
    rule = CommandRule(prefix="ai", binary="bash", args=("-c", script, "ai"), envelope=True)
    told = Told(backend_of(git_repo, rule, instructions="Mark what matters."), git_repo, "work")
    assert (await told.end()).ok
    assert told.texts == [
        "<<<SLACK:progress>>>found 3<<<END_SLACK>>>",
        "<<<SLACK:done>>>⚠️ (incomplete) all is\nwell<<<END_SLACK>>>",
    ]
    assert told.page == []
    assert b"Mark what matters." in (git_repo / SESSIONS / "01234567.log").read_bytes()


async def test_the_echo_of_the_instructions_is_no_envelope(git_repo: Path) -> None:
    script = "read -r words; sleep 4; echo '<<<SLACK>>>mine<<<END_SLACK>>>'"
    rule = CommandRule(prefix="ai", binary="bash", args=("-c", script), mode="interactive", envelope=True)
    words = "Write <<<SLACK>>> like this <<<END_SLACK>>>."
    told = Told(backend_of(git_repo, rule, Pace(0.3, activation_s=2.5), words), git_repo, "go")
    await told.end()
    assert told.texts == ["<<<SLACK>>>mine<<<END_SLACK>>>"]
