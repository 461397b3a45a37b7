"""Agents that answer a prompt once: a program that takes it and prints its answer (`mode: headless`), and
``!create-image``, which as an agent is queued, stopped and recovered like any other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct

from codebutler.config.programs import is_headless
from codebutler.config.schema import CommandRule, RepoSettings
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.lookup import look_up, missing_rule, path_of
from codebutler.text.envelopes import enveloped
from codebutler.text.wording import one_line
from codebutler_worker.agents.backend import (
    AgentEvent,
    Finished,
    Started,
    Text,
    ToolUse,
    TurnRequest,
    line_of,
)
from codebutler_worker.agents.running import AgentContext, LiveTurn, TurnBackend, Waits
from codebutler_worker.agents.session_logs import SessionLog
from codebutler_worker.agents.shell.output import Stripper
from codebutler_worker.agents.survey import Surroundings, Survey
from codebutler_worker.internet.remote import MediaService, RemoteError
from codebutler_worker.media.files import IMAGES, kind_of, save_file
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.sandbox.process import AgentProcess
from codebutler_worker.tools.programs import UNATTENDED

ANSWER_CHARS = 256 * 2**10
"""Of a longer answer the end is kept; the session's log has all of it."""
SPOKEN_CHARS = 2**20
"""How much is searched while the program runs; of a flood, the rest goes only to the log, and its end into the
answer."""
TICK_S = 0.5
DRAIN_S = 1.0
LATE = "Stopped after {minutes:g} minutes (session.timeoutMinutes)."
FORGETFUL = ""
"""The session of a program without memory: it gets the earlier turns with each prompt."""


class HeadlessTurn(LiveTurn):
    """One turn, as long as its program runs."""

    def __init__(self, process: AgentProcess) -> None:
        self.process = process

    async def stop(self) -> None:
        """End the program."""
        await self.process.stop(eof_s=0.1)


class HeadlessBackend(TurnBackend[HeadlessTurn]):
    """Starts ``rule``'s program once for each turn. ``limit_s``: how long a turn may take."""

    def __init__(
        self, rule: CommandRule, context: AgentContext, around: Surroundings, limit_s: float
    ) -> None:
        super().__init__(context.clock, context.logs)
        self.name = rule.prefix
        self._rule = rule
        self._context = context
        self._around = around
        self._limit_s = limit_s

    async def _work(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        rule, session = self._rule, turn.session_id or turn.session_name or turn.turn_id
        found = self._around.find(rule, turn.workdir)
        told = (turn.system_prompt if rule.envelope else "", turn.prompt)
        ours = call(rule, found.argv, "\n\n".join(part for part in told if part), session)
        async with await self._context.network_policy.open(turn.workdir) as access:
            env, kept = (
                self._around.env() | UNATTENDED,
                (self._around.home / path for path in rule.home_paths),
            )
            policy = self._around.policy(turn, access, env, kept, found.readable)
            launch = self._context.sandbox.wrap(ours.argv, policy)
            async with await AgentProcess(launch, record=record.write).start() as process:
                yield Started(session if remembers(rule) else FORGETFUL)
                self._live[turn.turn_id] = HeadlessTurn(process)
                async with aclosing(self._spoken(turn, process, ours)) as events:
                    async for event in events:
                        yield event
                self._live[turn.turn_id] = None

    async def _spoken(
        self, turn: TurnRequest, process: AgentProcess, ours: CommandLine
    ) -> AsyncGenerator[AgentEvent]:
        late = asyncio.Event()
        ending = asyncio.create_task(self._end_in_time(process, late), name=f"limit:{turn.turn_id}")
        asking = asyncio.create_task(_ask(process, ours), name=f"ask:{turn.turn_id}")
        stripper, answer = Stripper(), Tail(ANSWER_CHARS)
        try:
            if turn.turn_id in self._stopped:
                await process.stop(eof_s=0)
            async for line in process.lines():
                text = stripper.feed(line + b"\n")
                answer.add(text)
                if answer.chars <= SPOKEN_CHARS:
                    yield Text(text)
            await process.wait()
            if turn.turn_id in self._stopped:
                yield Finished(ok=False, text="Stopped.", reason="stopped")
            elif late.is_set():
                yield Finished(ok=False, text=LATE.format(minutes=self._limit_s / 60), reason="timeout")
            else:
                yield self._finished(process, answer.text.strip(), await process.last_words())
        finally:
            ending.cancel()
            asking.cancel()
            await asyncio.gather(ending, asking, return_exceptions=True)

    def _finished(self, process: AgentProcess, answer: str, complaint: str) -> Finished:
        if process.returncode == 0 and answer:
            return Finished(ok=True, text=answer, reason="done")
        said = process.limit_hit or line_of(complaint) or line_of(answer) or "no output"
        told = f"{self.name} ended with exit code {process.returncode}: {said}"
        return Finished(ok=False, text=told, reason="failed")

    async def _end_in_time(self, process: AgentProcess, late: asyncio.Event) -> None:
        """End it after its time; also kill its leftovers, which may hold its output open."""
        until_s = self._clock.monotonic() + self._limit_s
        # Waiting for a process includes waiting for its pipes, which others may hold open.
        while process.returncode is None and (left_s := until_s - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(TICK_S, left_s))
        if process.returncode is None:
            late.set()
        else:
            await self._clock.sleep(DRAIN_S)
        await process.stop(eof_s=0.1)


class Tail:
    """The last lines added, about ``limit`` characters. ``chars``: how many were added in all."""

    def __init__(self, limit: int) -> None:
        self.chars = 0
        self._limit = limit
        self._lines: deque[str] = deque()
        self._kept = 0

    def add(self, line: str) -> None:
        """Add a line; of a very long one only the end."""
        self.chars += len(line)
        self._lines.append(line[-self._limit :])
        self._kept += len(self._lines[-1])
        while self._kept - len(self._lines[0]) >= self._limit:
            self._kept -= len(self._lines.popleft())

    @property
    def text(self) -> str:
        """The lines that were kept."""
        return "".join(self._lines)


async def _ask(process: AgentProcess, ours: CommandLine) -> None:
    if ours.stdin:
        await process.write_line(ours.stdin)
    process.close_stdin()


# How to start the program. Pure.

PROMPT, SESSION, SESSION_UUID = "{prompt}", "{session}", "{sessionUuid}"
FROM_STDIN = "-"
MAX_ARGUMENT_BYTES = 128 * 2**10 - 1
"""Linux: MAX_ARG_STRLEN without its NUL (execve(2))."""


class CommandLine(Struct, frozen=True):
    """The command line, and the data for its stdin."""

    argv: tuple[str, ...]
    stdin: bytes = b""


def remembers(rule: CommandRule) -> bool:
    """Whether its arguments name the conversation to resume."""
    return any(SESSION in word or SESSION_UUID in word for word in rule.args)


def call(rule: CommandRule, program: Sequence[str], prompt: str, session: str) -> CommandLine:
    """How to start ``program``. The prompt replaces ``{prompt}``, goes to stdin if the arguments end with ``-``, or
    else comes last.

    Raises AgentUnavailableError if it is too long for an argument.
    """
    uuid = str(uuid5(NAMESPACE_URL, session))
    words = [word.replace(SESSION, session).replace(SESSION_UUID, uuid) for word in rule.args]
    if words and words[-1] == FROM_STDIN:
        return CommandLine((*program, *words), prompt.encode(errors="replace"))
    text = prompt.replace("\0", "")
    text = f" {text}" if text.startswith("-") else text  # a person's text must not become an option
    if len(text.encode(errors="replace")) > MAX_ARGUMENT_BYTES:
        raise AgentUnavailableError(
            f"{rule.prefix}: the prompt is too long for an argument: let its `args` end with `-`, "
            "if it reads the prompt from its standard input"
        )
    if any(PROMPT in word for word in words):
        return CommandLine((*program, *(word.replace(PROMPT, text) for word in words)))
    return CommandLine((*program, *words, text))


# Created from a repository's settings.


def headless_backend(
    rule: CommandRule, settings: RepoSettings, sandbox: Sandbox, home: Path, clock: Clock
) -> HeadlessBackend:
    """The agent behind ``rule``'s prefix. Raises SandboxUnavailableError."""
    around = Surroundings(home, path_of(settings.agent_env), settings.agent_env)
    context = AgentContext.of(settings, sandbox, clock)
    return HeadlessBackend(rule, context, around, settings.config.session.timeout_minutes * 60)


def survey_headless(settings: RepoSettings, home: Path) -> list[Survey]:
    """Every agent of this kind, and whether its program is there."""
    return [survey_program(rule, settings, home) for rule in settings.config.commands if is_headless(rule)]


def survey_program(rule: CommandRule, settings: RepoSettings, home: Path) -> Survey:
    """A configured agent: without starting it, all we can check is whether its program exists."""
    if look_up(rule.binary, path_of(settings.agent_env), Path(settings.path)) is None:
        return Survey(rule.prefix, ready=False, note=str(missing_rule(rule.binary, home)))
    return Survey(rule.prefix, ready=True, note=rule.description)


_ENDINGS = ((b"\x89PNG", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif"))


class ImageBackend(TurnBackend[Waits]):
    """Asks the service for an image, stores it in the repository's ``images/`` and sends it as a file. It has no
    sessions: each turn is independent. The service may still draw, and charge for, one that was stopped."""

    name = "image"

    def __init__(self, service: MediaService) -> None:
        super().__init__(SystemClock())
        self._service = service

    async def _work(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        del record  # there is no program to record
        waits = self._live[turn.turn_id] = Waits(self._clock)
        if self._service.available:
            yield ToolUse(turn.turn_id, "Image", one_line(turn.prompt, 80))
        yield await waits.work(self._draw(turn))

    async def _draw(self, turn: TurnRequest) -> Finished:
        try:
            picture = await self._service.draw(turn.prompt)
            if kind_of(picture) != "image":
                raise RemoteError("the image service sent something that is not an image")
            name = f"image-{turn.turn_id[:12]}{_ending(picture)}"
            path = await asyncio.to_thread(save_file, turn.workdir, IMAGES, name, picture)
        except RemoteError as error:
            return Finished(ok=False, text=f"No image: {error}.", reason="failed")
        except OSError as error:
            why = error.strerror or str(error)
            return Finished(ok=False, text=f"The image cannot be saved in {IMAGES}: {why}.", reason="failed")
        return Finished(ok=True, text=enveloped(f" {path} ", "file"), reason="done")


def _ending(picture: bytes) -> str:
    return next((ending for magic, ending in _ENDINGS if picture.startswith(magic)), ".webp")
