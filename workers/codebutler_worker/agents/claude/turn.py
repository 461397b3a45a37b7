"""Turn: one prompt's way through a live session, with the timers that end it when the CLI does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from codebutler.clock import Clock
from codebutler_worker.agents.backend import AgentEvent, Answer, Reason, TurnRequest
from codebutler_worker.agents.claude import command
from codebutler_worker.agents.claude.schema import ControlRequest, Line
from codebutler_worker.agents.claude.session import EndOfStream, Heard, LiveSession
from codebutler_worker.agents.claude.translate import ASK_PERSON, Translator, questions
from codebutler_worker.agents.claude.verdict import STOPPED, Verdict, crash

TICK_S = 1.0
CONTINUATION_S = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a turn may take.

    Waiting for a person counts for nothing. ``stall_s``: silence while no tool runs (the CLI's own watchdog
    takes 300 s), ``start_s``: before its first line. ``background_s``: how long the answer waits for shell
    commands left in the background.
    """

    timeout_s: float
    stall_s: float = 600.0
    start_s: float = 60.0
    background_s: float = 60.0


class Watch:
    """Pure: what has lasted how long."""

    def __init__(self, now: float, limits: Limits) -> None:
        self._last = now
        self._limits = limits
        self._spent_s = 0.0
        self._silent_s = 0.0
        self._stall_s = min(limits.start_s, limits.stall_s)
        self._answered_s = 0.0

    def heard(self) -> None:
        """The CLI gave a sign of life."""
        self._stall_s = self._limits.stall_s
        self._silent_s = 0.0

    def pass_time(self, now: float, turn: Translator) -> None:
        """Account for the time since the last call, by what the turn is doing."""
        passed_s, self._last = now - self._last, now
        if not turn.asking:
            self._spent_s += passed_s
            self._silent_s += passed_s
        self._answered_s = self._answered_s + passed_s if turn.result is not None else 0.0

    def due(self, turn: Translator) -> Reason | None:
        """Why the turn must end now: "done" when only what may be cut off is left."""
        if self._spent_s >= self._limits.timeout_s:
            return "timeout"
        if turn.result is not None and not turn.subagents:
            if turn.tasks:
                return "done" if self._answered_s >= self._limits.background_s else None
            return "done" if self._silent_s >= CONTINUATION_S else None
        if self._silent_s >= self._stall_s and not turn.busy:
            return "stalled"
        return None


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

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Send the prompt and yield what comes of it; afterwards ``verdict`` is set."""
        watch = Watch(self._clock.monotonic(), self._limits)
        await self.say(self.request.prompt)
        hear = asyncio.create_task(self.session.hear(), name=f"hear:{self.request.turn_id}")
        tick = asyncio.create_task(self._clock.sleep(TICK_S), name=f"tick:{self.request.turn_id}")
        try:
            while self.verdict is None:
                await asyncio.wait({hear, tick}, return_when=asyncio.FIRST_COMPLETED)
                watch.pass_time(self._clock.monotonic(), self.translator)
                if tick.done():
                    tick = asyncio.create_task(self._clock.sleep(TICK_S), name=f"tick:{self.request.turn_id}")
                    if self.translator.meter.wants_price():
                        await self.session.write(command.cost_line())
                if hear.done():
                    watch.heard()
                    heard = hear.result()
                    hear = asyncio.create_task(self.session.hear(), name=f"hear:{self.request.turn_id}")
                    for event in await self._take(heard):
                        yield event
                elif reason := watch.due(self.translator):
                    self.verdict = self._cut_off(reason)
        finally:
            hear.cancel()
            tick.cancel()
            await asyncio.gather(hear, tick, return_exceptions=True)
            self._over.set()

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

    async def stop(self, within_s: float = 2.0) -> None:
        """Interrupt; if no result comes in time, end the process. The stream then ends by itself."""
        self._stopping = True
        try:
            async with asyncio.timeout(within_s):
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
        return await self.session.write(line)

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
        return await self.session.write(command.allow_line(pending.request_id, answered))

    async def _take(self, heard: Heard) -> list[AgentEvent]:
        if isinstance(heard, EndOfStream):
            self.verdict = await self._ended()
            return []
        events = self.translator.feed(heard)
        await self._refuse_unknown(heard)
        if self.translator.refused:
            text = f"Claude Code does not take its instructions: {self.translator.refused}"
            self.verdict = Verdict("unavailable", text)
        elif self.translator.settled:
            self.verdict = self._settled()
        return events

    async def _refuse_unknown(self, heard: Line | None) -> None:
        if isinstance(heard, ControlRequest) and heard.request_id not in self.translator.asking:
            await self.session.write(command.unsupported_line(heard.request_id))

    def _settled(self) -> Verdict | None:
        return STOPPED if self._stopping else self.translator.verdict()

    async def _ended(self) -> Verdict:
        if self._stopping:
            return STOPPED
        said = self.translator.verdict()
        return said or crash(await self.session.exit_code(), self.session.stderr_tail)

    def _cut_off(self, reason: Reason) -> Verdict:
        if self._stopping:
            return STOPPED
        match reason:
            case "timeout":
                minutes = self._limits.timeout_s / 60
                text = f"Stopped after {minutes:g} minutes (claude.timeout): press Continue to go on."
                return Verdict("timeout", text)
            case "stalled":
                return Verdict("stalled", "Claude Code fell silent and was stopped: send the message again.")
            case _:
                return self._settled() or Verdict("failed", "Claude Code gave no result.")
