"""Turn: one prompt's way through a live session, with the timers that end it when the CLI does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from codebutler.clock import Clock
from codebutler_worker.agents.backend import AgentEvent, Answer, Reason, TurnRequest, Usage
from codebutler_worker.agents.claude import command
from codebutler_worker.agents.claude.patience import Patience
from codebutler_worker.agents.claude.schema import ControlRequest, Line
from codebutler_worker.agents.claude.session import EndOfStream, Heard, LiveSession
from codebutler_worker.agents.claude.translate import ASK_PERSON, Translator, questions
from codebutler_worker.agents.claude.verdict import crash
from codebutler_worker.agents.metered import metered
from codebutler_worker.agents.verdict import STOPPED, Verdict
from codebutler_worker.agents.watch import Limits

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
                        await self.session.write(command.cost_line())
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
