"""Turn: one prompt's way through a live process of Claude Code, with the timers that end it when the CLI does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Self
from uuid import uuid4

from codebutler.domain.clock import Clock
from codebutler_worker.agents.backend import STOPPED, AgentEvent, Answer, Reason, TurnRequest, Usage, Verdict
from codebutler_worker.agents.claude import command
from codebutler_worker.agents.claude.result import crash
from codebutler_worker.agents.claude.schema import ControlRequest, Line, decode
from codebutler_worker.agents.claude.translate import ASK_PERSON, Translator, questions
from codebutler_worker.agents.running import Limits, Watch, metered
from codebutler_worker.egress.service import TokenMeter
from codebutler_worker.egress.way import Way
from codebutler_worker.programs.process import AgentProcess, Record
from codebutler_worker.sandbox.port import Launch

# LiveSession: one Claude Code process that works in one session, and the lines that go in and out of it.

QUEUE_LINES = 256
LARGE_BYTES = 64 * 2**10
"""A line of so many is heard before the next one is read: a queue full of them would be gigabytes."""


class EndOfStream:
    """The process closed its stdout."""


Heard = Line | EndOfStream | None
"""A line, a line that was not understood (None), or the end."""


class LiveSession:
    """Lives as long as one turn; ``end`` leaves nothing of it behind."""

    def __init__(self, process: AgentProcess) -> None:
        self.process = process
        self.way: Way | None = None
        """Its way out, which ends with it."""
        # Bounded: a flood of lines waits in the pipe, not in our memory.
        self._heard: asyncio.Queue[Heard] = asyncio.Queue(QUEUE_LINES)
        self._taken = asyncio.Event()
        self._over = False
        self._reader = asyncio.create_task(self._read(), name=f"claude:{process.pid}")

    @classmethod
    async def open(cls, launch: Launch, system_prompt: str, record: Record | None = None) -> Self:
        """Start the process; ``system_prompt`` is appended to the CLI's own, ``record`` gets all it writes.

        Raises AgentUnavailableError if it cannot be started.
        """
        session = cls(await AgentProcess.spawn(launch, record=record))
        try:
            await session.process.write_line(command.initialize_line(system_prompt))
        except BaseException:
            await session.end(at_once=True)
            raise
        return session

    @property
    def gauge(self) -> TokenMeter | None:
        """What its model's service has answered so far; None if that cannot be seen."""
        return None if self.way is None else self.way.gauge

    async def say(self, text: str) -> str:
        """Send a person's message; returns the id by which the CLI reports on it, empty if not taken."""
        uuid = str(uuid4())
        return uuid if await self.process.write_line(command.message_line(text, uuid)) else ""

    async def interrupt(self) -> bool:
        """Ask the CLI to end its turn; it answers with a result and stays alive."""
        return await self.process.write_line(
            command.control_line(f"interrupt-{uuid4()}", {"subtype": "interrupt"})
        )

    async def hear(self) -> Heard:
        """The next line. After the end of the stream, the end again and again."""
        if self._over:
            return EndOfStream()
        heard = await self._heard.get()
        if self._heard.empty():
            self._taken.set()
        self._over = isinstance(heard, EndOfStream)
        return heard

    async def end(self, *, at_once: bool = False) -> None:
        """End the process: close its stdin, then by force. ``at_once``: in mid turn, where it would go on."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        try:
            await self.process.stop(eof_s=0.3 if at_once else 1.5, term_s=1.0)
        finally:
            if self.way is not None:
                await self.way.close()
        if self._heard.full():
            self._heard.get_nowait()
        self._heard.put_nowait(EndOfStream())

    async def _read(self) -> None:
        async for line in self.process.lines():
            if line.strip():
                await self._heard.put(decode(line))
                if len(line) >= LARGE_BYTES:
                    self._taken.clear()
                    await self._taken.wait()
        await self._heard.put(EndOfStream())


# How long a turn of Claude Code is waited for: its result may be followed by more.

CONTINUATION_S = 5.0
"""Silence after a result that means that nothing follows."""


class Patience:
    """One turn's Watch, and how long its result has been there."""

    def __init__(self, now: float, limits: Limits) -> None:
        self._watch = Watch(now, limits)
        self._background_s = limits.background_s
        self._answered_s = 0.0

    def heard(self) -> None:
        """The CLI gave a sign of life."""
        self._watch.heard()

    def pass_time(self, now: float, turn: Translator) -> None:
        """Account for the time since the last call, by what the turn is doing."""
        passed_s = self._watch.pass_time(now, asking=bool(turn.asking))
        self._answered_s = self._answered_s + passed_s if turn.result is not None else 0.0

    def due(self, turn: Translator) -> Reason | None:
        """Why the turn must end now: "done" when only what may be cut off is left."""
        answered = turn.result is not None and not turn.subagents
        if (reason := self._watch.due(busy=turn.busy or answered)) or not answered:
            return reason
        if turn.tasks:
            return "done" if self._answered_s >= self._background_s else None
        return "done" if self._watch.silent_s >= CONTINUATION_S else None


TICK_S = 1.0


class Turn:
    """Owned by the backend, which yields ``events`` and then reads ``verdict``."""

    def __init__(
        self, request: TurnRequest, session: LiveSession, translator: Translator, clock: Clock, limits: Limits
    ) -> None:
        self.request = request
        self.session = session
        self.translator = translator
        self.verdict: Verdict | None = None
        self._over = asyncio.Event()
        self._clock = clock
        self._limits = limits
        self._stopping = False
        self._answers: dict[str, dict[str, str]] = {}
        self._seen: Usage | None = None

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Send the prompt and yield what comes of it; afterwards ``verdict`` is set."""
        patience = Patience(self._clock.monotonic(), self._limits)
        await self.say(self.request.prompt)
        hear = asyncio.create_task(self.session.hear(), name=f"hear:{self.request.turn_id}")
        tick = asyncio.create_task(self._clock.sleep(TICK_S), name=f"tick:{self.request.turn_id}")
        try:
            while self.verdict is None:
                await asyncio.wait({hear, tick}, return_when=asyncio.FIRST_COMPLETED)
                patience.pass_time(self._clock.monotonic(), self.translator)
                if tick.done():
                    tick = asyncio.create_task(self._clock.sleep(TICK_S), name=f"tick:{self.request.turn_id}")
                    if self.translator.meter.wants_price():
                        await self.session.process.write_line(command.cost_line())
                    if usage := self._noticed():
                        yield usage
                if hear.done():
                    patience.heard()
                    heard = hear.result()
                    hear = asyncio.create_task(self.session.hear(), name=f"hear:{self.request.turn_id}")
                    for event in await self._take(heard):
                        yield event
                elif reason := patience.due(self.translator):
                    self.verdict = self._cut_off(reason)
        finally:
            hear.cancel()
            tick.cancel()
            await asyncio.gather(hear, tick, return_exceptions=True)
            self._over.set()

    def _noticed(self) -> Usage | None:
        """What has been used, when that is far more than the CLI tells, and more than before."""
        told = self.translator.meter.usage
        seen = metered(told, self.session.gauge)
        if seen in (told, self._seen):
            return None
        self._seen = seen
        return seen

    async def say(self, text: str) -> bool:
        """Send a message into the turn; False if the process no longer listens."""
        uuid = await self.session.say(text)
        if uuid:
            self.translator.sent(uuid)
        return bool(uuid)

    @property
    def listens(self) -> bool:
        """A message sent now still belongs to this turn."""
        return self.verdict is None and self.translator.result is None and not self._stopping

    async def stop(self) -> None:
        """Interrupt; if no result comes in time, end the process. The stream then ends by itself."""
        self._stopping = True
        try:
            async with asyncio.timeout(self._limits.stop_s):
                if await self.session.interrupt():
                    await self._over.wait()
        except TimeoutError:
            await self.session.end(at_once=True)

    async def answer(self, request_id: str, answer: Answer) -> bool:
        """Reply to an Approval or Question; False if it no longer waits."""
        call_id, _, number = request_id.partition("#")
        pending = self.translator.asking.get(call_id)
        if pending is None:
            return False
        if not answer.allow:
            line = command.deny_line(call_id, answer.text or "Denied by the person in charge.")
        elif pending.request.tool_name == ASK_PERSON and number:
            return await self._answer_question(pending, number, answer.text)
        else:
            line = command.allow_line(call_id, pending.request.input)
        del self.translator.asking[call_id]
        return await self.session.process.write_line(line)

    async def _answer_question(self, pending: ControlRequest, number: str, text: str) -> bool:
        asked = questions(pending.request.input)
        if not number.isdigit() or int(number) >= len(asked):
            return False
        given = self._answers.setdefault(pending.request_id, {})
        given[str(asked[int(number)].get("question", ""))] = text
        if len(given) < len({str(each.get("question", "")) for each in asked}):
            return True
        del self.translator.asking[pending.request_id]
        answered = {**pending.request.input, "answers": given}
        return await self.session.process.write_line(command.allow_line(pending.request_id, answered))

    async def _take(self, heard: Heard) -> list[AgentEvent]:
        if isinstance(heard, EndOfStream):
            self.verdict = await self._ended()
            return []
        events = self.translator.feed(heard)
        if isinstance(heard, ControlRequest) and heard.request_id not in self.translator.asking:
            await self.session.process.write_line(command.unsupported_line(heard.request_id))
        if self.translator.refused:
            text = f"Claude Code does not take its instructions: {self.translator.refused}"
            self.verdict = Verdict("unavailable", text)
        elif self.translator.settled:
            self.verdict = self._settled()
        return events

    def _settled(self) -> Verdict | None:
        return STOPPED if self._stopping else self.translator.verdict()

    async def _ended(self) -> Verdict:
        if self._stopping:
            return STOPPED
        said = self.translator.verdict()
        process = self.session.process
        return said or crash(await process.exit_code(), process.stderr_tail)

    def _cut_off(self, reason: Reason) -> Verdict:
        if self._stopping:
            return STOPPED
        match reason:
            case "timeout":
                minutes = self._limits.timeout_s / 60
                text = f"Stopped after {minutes:g} minutes (claude.timeout): choose Continue to go on."
                return Verdict("timeout", text)
            case "stalled":
                return Verdict("stalled", "Claude Code stopped responding: press Continue to go on.")
            case _:
                return self._settled() or Verdict("failed", "Claude Code gave no result.")
