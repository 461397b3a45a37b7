"""HeadlessBackend: any program that takes a prompt and prints its answer (`mode: headless`) as an agent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from codebutler.config.schema import CommandRule
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.lookup import look_up, missing_rule
from codebutler_worker.agents.acp.programs import Program, program
from codebutler_worker.agents.backend import AgentEvent, Answer, Finished, Started, Text, TurnRequest
from codebutler_worker.agents.headless.command import Call, call, remembers
from codebutler_worker.agents.record import SessionLog
from codebutler_worker.agents.running import AgentContext, RunningTurns
from codebutler_worker.agents.shell.command import PASSED_ON, Surroundings
from codebutler_worker.agents.shell.hearing import Stripper
from codebutler_worker.egress.way import Way
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.programs.program import UNATTENDED
from codebutler_worker.sandbox.port import SandboxPolicy

ANSWER_CHARS = 256 * 2**10
"""Of a longer answer the end is kept; the session's log has all of it."""
SPOKEN_CHARS = 2**20
"""What is looked at while the program works: a flood goes into the log only, and its end into the answer."""
REASON_CHARS = 500
TICK_S = 0.5
DRAIN_S = 1.0
LATE = "Stopped after {minutes:g} minutes (session.timeoutMinutes)."
FORGETFUL = ""
"""The session of a program that knows nothing of earlier turns: it is told them."""


class HeadlessBackend:
    """Starts ``rule``'s program once for each turn. ``limit_s``: how long a turn may take."""

    def __init__(
        self, rule: CommandRule, context: AgentContext, around: Surroundings, limit_s: float
    ) -> None:
        self.name = rule.prefix
        self._rule = rule
        self._context = context
        self._around = around
        self._limit_s = limit_s
        self._running: RunningTurns[AgentProcess] = RunningTurns(context.clock, context.logs)

    def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the program. Closing the iterator early ends it and everything it started."""
        return self._running.run(turn, self._events)

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:  # noqa: ARG002 - it never asks
        """See the port."""
        return False

    async def steer(self, turn_id: str, text: str) -> bool:  # noqa: ARG002 - it reads one prompt
        """See the port."""
        return False

    async def stop(self, turn_id: str) -> bool | None:
        """End the program."""
        if process := self._running.stop(turn_id):
            await process.stop(eof_s=0.1)
        return None

    async def close(self) -> None:
        """End every program."""
        await asyncio.gather(*(process.stop(eof_s=0.1) for process in self._running.close()))

    async def _events(self, turn: TurnRequest, log: SessionLog) -> AsyncGenerator[AgentEvent]:
        session = turn.session_id or turn.session_name or turn.turn_id
        try:
            found = self._found(turn.workdir)
            told = (turn.system_prompt if self._rule.envelope else "", turn.prompt)
            ours = call(self._rule, found.argv, "\n\n".join(part for part in told if part), session)
            async with await self._context.outlet.open(turn.workdir) as way:
                launch = self._context.sandbox.wrap(ours.argv, self._policy(turn, found, way))
                async with await AgentProcess.spawn(launch, record=log.write) as process:
                    yield Started(session if remembers(self._rule) else FORGETFUL)
                    with self._running.heard_by(turn.turn_id, process):
                        async with aclosing(self._spoken(turn, process, ours)) as events:
                            async for event in events:
                                yield event
        except CodeButlerError as error:
            yield Finished(ok=False, text=str(error), reason="unavailable")

    async def _spoken(
        self, turn: TurnRequest, process: AgentProcess, ours: Call
    ) -> AsyncGenerator[AgentEvent]:
        late = asyncio.Event()
        ending = asyncio.create_task(self._end_in_time(process, late), name=f"limit:{turn.turn_id}")
        asking = asyncio.create_task(_ask(process, ours), name=f"ask:{turn.turn_id}")
        stripper, answer = Stripper(), Tail(ANSWER_CHARS)
        try:
            if self._running.unwanted(turn.turn_id):
                await process.stop(eof_s=0)
            async for line in process.lines():
                text = stripper.feed(line + b"\n")
                answer.add(text)
                if answer.chars <= SPOKEN_CHARS:
                    yield Text(text)
            await process.wait()
            if self._running.unwanted(turn.turn_id):
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
        said = process.limit_hit or _last_line(complaint) or _last_line(answer) or "it said nothing"
        told = f"{self.name} ended with exit code {process.returncode}: {said}"
        return Finished(ok=False, text=told, reason="failed")

    async def _end_in_time(self, process: AgentProcess, late: asyncio.Event) -> None:
        """End it after its time; and what it has left behind, which may hold its output open."""
        until_s = self._context.clock.monotonic() + self._limit_s
        # To wait for a process is to wait for its pipes as well, which others may hold.
        while process.returncode is None and (left_s := until_s - self._context.clock.monotonic()) > 0:
            await self._context.clock.sleep(min(TICK_S, left_s))
        if process.returncode is None:
            late.set()
        else:
            await self._context.clock.sleep(DRAIN_S)
        await process.stop(eof_s=0.1)

    def _found(self, workdir: Path) -> Program:
        binary = look_up(self._rule.binary, self._around.path, workdir)
        if binary is None:
            raise missing_rule(self._rule.binary, self._around.home)
        return program(binary, self._around.path, workdir, self._around.home)

    def _policy(self, turn: TurnRequest, found: Program, way: Way) -> SandboxPolicy:
        home = self._around.home
        passed = {key: value for key, value in self._around.agent_env.items() if key in PASSED_ON}
        base = {"HOME": str(home), "PATH": self._around.path, "LANG": "C.UTF-8", "TERM": "dumb"}
        kept = (home / path for path in self._rule.home_paths)
        return SandboxPolicy(
            workdir=turn.workdir,
            home=home,
            home_paths=tuple(path for path in kept if path.exists()),
            readable=found.readable,
            env={**base, **UNATTENDED, **passed, **way.env},
            network=way.network,
            conversation=turn.conversation,
        )


class Tail:
    """The last lines of what is added, about ``limit`` characters. ``chars``: how many there were in all."""

    def __init__(self, limit: int) -> None:
        self.chars = 0
        self._limit = limit
        self._lines: deque[str] = deque()
        self._kept = 0

    def add(self, line: str) -> None:
        """One more line; of a very long one its end."""
        self.chars += len(line)
        self._lines.append(line[-self._limit :])
        self._kept += len(self._lines[-1])
        while self._kept - len(self._lines[0]) >= self._limit:
            self._kept -= len(self._lines.popleft())

    @property
    def text(self) -> str:
        """What is kept."""
        return "".join(self._lines)


async def _ask(process: AgentProcess, ours: Call) -> None:
    if ours.stdin:
        await process.write_line(ours.stdin)
    process.close_stdin()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:REASON_CHARS] if lines else ""
