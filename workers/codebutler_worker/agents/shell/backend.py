"""ShellBackend: programs of `commands` (and `run`) behind the AgentBackend port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from codebutler.config.schema import CommandRule
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.lookup import look_up, missing_rule
from codebutler_worker.agents.backend import (
    AgentEvent,
    Answer,
    Finished,
    Started,
    ToolUse,
    TurnRequest,
)
from codebutler_worker.agents.record import SessionLog, session_of
from codebutler_worker.agents.running import AgentContext, RunningTurns
from codebutler_worker.agents.shell import command
from codebutler_worker.agents.shell.backlog import Backlog
from codebutler_worker.agents.shell.hearing import Hearing
from codebutler_worker.agents.shell.run import GONE, Pace, Run
from codebutler_worker.egress.way import Way
from codebutler_worker.programs.pty import PROGRAM, PtyProcess

SUMMARY_CHARS = 150
UNRECORDED = "⚠️ The session's log could not be kept: {why}."


class ShellBackend:
    """Starts ``rule``'s program for each turn. It has no sessions to resume: each turn stands alone."""

    def __init__(
        self,
        rule: CommandRule,
        context: AgentContext,
        around: command.Surroundings,
        pace: Pace,
    ) -> None:
        self.name = rule.prefix
        self._rule = rule
        self._context = context
        self._around = around
        self._pace = pace
        self._instructions = around.instructions if rule.envelope else ""
        """What its programs reach."""
        self._running: RunningTurns[Run] = RunningTurns(context.clock, context.logs)

    def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the program. Closing the iterator early ends it and everything it started."""
        return self._running.run(turn, self._reaching)

    async def _reaching(self, turn: TurnRequest, log: SessionLog) -> AsyncGenerator[AgentEvent]:
        yield Started(session_of(turn.turn_id))
        yield ToolUse(turn.turn_id, self.name, " ".join(turn.prompt.split())[:SUMMARY_CHARS])
        try:
            async with (
                await self._context.outlet.open(turn.workdir) as way,
                aclosing(self._events(turn, log, way)) as events,
            ):
                async for event in events:
                    yield event
        except CodeButlerError as error:
            yield Finished(ok=False, text=str(error), reason="unavailable")

    async def type(self, turn_id: str, text: str) -> str:
        """Type into a running session; "" if that worked, else one line that says why not."""
        run = self._running.listener(turn_id)
        return GONE if run is None else await run.type(text)

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:  # noqa: ARG002 - it never asks
        """See the port."""
        return False

    async def steer(self, turn_id: str, text: str) -> bool:  # noqa: ARG002 - words for an agent are not typed
        """See the port."""
        return False

    async def stop(self, turn_id: str) -> bool | None:
        """Ctrl-C. A session goes on after it (False); asked twice, it ends."""
        run = self._running.stop(turn_id)
        return None if run is None else not await run.interrupt()

    async def close(self) -> None:
        """End every program."""
        await asyncio.gather(*(run.end("stopped") for run in self._running.close()))

    async def _events(self, turn: TurnRequest, log: SessionLog, way: Way) -> AsyncGenerator[AgentEvent]:
        interactive = self._rule.mode == "interactive"
        text = "\n\n".join(part for part in (self._instructions, turn.prompt) if part)
        binary = look_up(self._rule.binary, self._around.path, turn.workdir)
        if binary is None:
            raise missing_rule(self._rule.binary, self._around.home)
        words = (*PROGRAM, *command.argv(self._rule, binary, text))
        policy = command.policy(self._around, self._rule, binary, turn.workdir, way)
        launch = self._context.sandbox.wrap(words, replace(policy, conversation=turn.conversation))
        backlog = Backlog()
        hearing = Hearing(self._pace.unclosed_s) if self._rule.envelope else None
        sink = Sink(backlog, hearing, self._context.clock)
        async with await PtyProcess.spawn(launch, sink.take, log.write) as process:
            run = Run(
                process, backlog, self._context.clock, self._pace, interactive=interactive, hearing=hearing
            )
            with self._running.heard_by(turn.turn_id, run):
                if self._running.unwanted(turn.turn_id):
                    await run.end("stopped")
                await run.begin(text, delay=bool(self._instructions))
                async with aclosing(run.events()) as events:
                    async for event in events:
                        yield event
                notes = [run.last_note, UNRECORDED.format(why=log.failed) if log.failed else ""]
                if any(notes):
                    yield replace(run.last, note="\n".join(note for note in notes if note))
                yield run.finished()


class Sink:
    """Where a program's output goes on the reader's thread, once it is in the log."""

    def __init__(self, backlog: Backlog, hearing: Hearing | None, clock: Clock) -> None:
        self._backlog = backlog
        self._hearing = hearing
        self._clock = clock

    def take(self, data: bytes, newline_returns: bool) -> None:
        """The next output."""
        if self._hearing is not None:
            self._hearing.feed(data, self._clock.monotonic())
        else:
            self._backlog.push(data, newline_returns=newline_returns)
