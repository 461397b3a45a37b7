"""Turn: one prompt's way through a session, with the timers that end it when the agent does not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Sequence

from acp.exceptions import RequestError
from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    InitializeResponse,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionModeState,
    SessionNotification,
)
from pydantic import ValidationError

from codebutler.domain.clock import Clock
from codebutler_worker.agents.acp.kind import Kind
from codebutler_worker.agents.acp.link import Asked, Heard, Link, Pause
from codebutler_worker.agents.acp.translate import Translator, is_choice, option_for, over_in
from codebutler_worker.agents.acp.verdict import AUTH_REQUIRED, crash, judge_error, judge_stop, no_agent
from codebutler_worker.agents.backend import (
    STOPPED,
    AgentEvent,
    Answer,
    Reason,
    Started,
    TurnRequest,
    Usage,
    Verdict,
    Withdrawn,
)
from codebutler_worker.agents.running import Limits, Watch

TICK_S = 1.0
log = logging.getLogger(__name__)


class Turn:
    """Owned by the backend, which yields ``events`` and then reads ``verdict``, ``usage`` and ``prompts``."""

    def __init__(self, request: TurnRequest, link: Link, kind: Kind, clock: Clock, limits: Limits) -> None:
        self.request = request
        self.link = link
        self.translator = Translator(request.workdir)
        self.verdict: Verdict | None = None
        self.usage = Usage()
        self.prompts = 0
        self._over = asyncio.Event()
        self._kind = kind
        self._clock = clock
        self._limits = limits
        self._stopping = False
        self._asked: dict[str, Asked] = {}
        self._unsaid: list[str] = []
        self._noticed_tokens = 0
        self._begun: Started | None = None
        """Its session, until the agent shows that it has read the prompt: one that dies before remembers nothing."""
        self._answered = False

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Run the prompt and yield what comes of it; afterwards ``verdict`` is set."""
        watch = Watch(self._clock.monotonic(), self._limits)
        name = self.request.turn_id
        drive = asyncio.create_task(self._drive(), name=f"drive:{name}")
        hear = asyncio.create_task(self.link.hear(), name=f"hear:{name}")
        tick = asyncio.create_task(self._clock.sleep(TICK_S), name=f"tick:{name}")
        try:
            while self.verdict is None:
                await asyncio.wait({hear, tick, drive}, return_when=asyncio.FIRST_COMPLETED)
                watch.pass_time(self._clock.monotonic(), asking=bool(self._asked))
                if tick.done():
                    tick = asyncio.create_task(self._clock.sleep(TICK_S), name=f"tick:{name}")
                    for event in self._noticed():
                        yield event
                if hear.done():
                    watch.heard()
                    heard = hear.result()
                    hear = asyncio.create_task(self.link.hear(), name=f"hear:{name}")
                    for event in self._take(heard):
                        yield event
                else:
                    self.verdict = drive.result() if drive.done() else self._due(watch)
            for event in self._rest():
                yield event
        finally:
            for task in (hear, tick, drive):
                task.cancel()
            await asyncio.gather(hear, tick, drive, return_exceptions=True)
            self._over.set()

    async def answer(self, request_id: str, answer: Answer) -> bool:
        """Reply to an Approval or Question; False if it no longer waits.

        The protocol knows options and no words: what a person said besides is told when the turn would end.
        """
        asked = self._asked.pop(request_id, None)
        if asked is None:
            return False
        chosen = option_for(asked.request, allow=answer.allow, text=answer.text)
        if not self.link.answer(request_id, chosen):
            return False
        names = {option.name for option in asked.request.options}
        if answer.text and not (is_choice(asked.request) and answer.text in names):
            title = asked.request.tool_call.title or "what you asked"
            self._unsaid.append(f"About {title}: {answer.text}")
        return True

    async def stop(self) -> None:
        """Ask the agent to end its turn; if it does not in time, end the process. The stream then ends by itself."""
        self._stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.stop_s):
                if self.link.session_id:
                    await self.link.cancel()
                    await self._over.wait()
                    return
        await self.link.end(at_once=True)

    # -- the turn itself

    async def _drive(self) -> Verdict:
        try:
            verdict = await self._work()
            self._answered = self.prompts > 0
        except RequestError as error:
            self._answered = self.prompts > 0
            verdict = judge_error(error.code, told_by(error), self._kind.title, self._kind.login)
        except ValidationError:
            text = f"{self._kind.title} speaks the Agent Client Protocol in a way that is not understood: update it."
            verdict = Verdict("unavailable", text)
        except ConnectionError:
            verdict = await self._ended()
        return STOPPED if self._stopping else verdict

    async def _work(self) -> Verdict:
        hello = await self.link.initialize()
        if hello.protocol_version != PROTOCOL_VERSION:
            spoken = f"version {hello.protocol_version} of the Agent Client Protocol, not {PROTOCOL_VERSION}"
            return Verdict("unavailable", f"{self._kind.title} speaks {spoken}: update it, or CodeButler.")
        if self.request.ready is not None:
            await self.request.ready()
        texts = [self.request.prompt]
        modes, is_new = await self._session(hello)
        if is_new and self.request.system_prompt:
            texts.insert(0, self.request.system_prompt)
        if not await self._choose(modes):
            return Verdict(
                "unavailable",
                f"{self._kind.title} has no mode {self._kind.mode}: update it, or choose another.",
            )
        while True:
            # In one text, and never with a slash first: that would be a command of the agent's.
            text = "\n\n".join(texts)
            self.prompts += 1
            response = await self.link.prompt([f" {text}" if text.startswith("/") else text])
            if response.usage is not None:
                self._count(response.usage.input_tokens, response.usage.output_tokens)
            verdict = judge_stop(response.stop_reason, self._kind.title)
            if not self._unsaid or verdict.reason != "done" or self._stopping:
                return verdict
            texts, self._unsaid = self._unsaid, []
            self.link.tell(Pause())

    async def _session(self, hello: InitializeResponse) -> tuple[SessionModeState | None, bool]:
        """The session of the request, or a new one; whether it is new."""
        earlier, able = self.request.session_id, hello.agent_capabilities
        known = able.session_capabilities if able is not None else None
        silent = known is not None and known.resume is not None
        remembers = silent or (able is not None and bool(able.load_session))
        if earlier and remembers:
            try:
                resumed = await self.link.continue_session(earlier, self.request.workdir, silent=silent)
            except RequestError as error:
                if error.code == AUTH_REQUIRED:
                    raise
                log.warning(
                    "%s: the session of %s is lost: %s", self._kind.name, self.request.conversation, error
                )
            else:
                self.link.tell(Started(earlier, model=self._kind.model or _model_of(resumed.config_options)))
                return resumed.modes, False
        session = await self.link.new_session(self.request.workdir)
        # One without memory is told earlier turns with each, by a session that has no name.
        model = self._kind.model or _model_of(session.config_options)
        self.link.tell(Started(session.session_id if remembers else "", fresh=bool(earlier), model=model))
        return session.modes, True

    async def _choose(self, modes: SessionModeState | None) -> bool:
        """Choose mode and model; False if the mode is not offered."""
        if self._kind.model:
            await self.link.set_model(self._kind.model)
        if not self._kind.mode:
            return True
        if modes is None or self._kind.mode not in {mode.id for mode in modes.available_modes}:
            return False
        if modes.current_mode_id != self._kind.mode:
            await self.link.set_mode(self._kind.mode)
        return True

    def _noticed(self) -> list[AgentEvent]:
        """What its model's service has answered, while the agent itself says nothing of that."""
        gauge = self.link.way.gauge if self.link.way is not None else None
        if gauge is None or gauge.total == self._noticed_tokens:
            return []
        self._noticed_tokens = gauge.total
        cost = self._kind.cost(gauge)
        return [Usage(gauge.input, gauge.output, cost, max(1, self.usage.turns))]

    def _count(self, input_tokens: int, output_tokens: int) -> None:
        used = self.usage
        self.usage = Usage(
            used.input_tokens + input_tokens, used.output_tokens + output_tokens, None, used.turns + 1
        )

    def _take(self, heard: Heard) -> list[AgentEvent]:
        match heard:
            case Started():
                self._begun = heard
                return []
            case Pause():
                return [*self._taken(), *self.translator.flush()]
            case Asked(id=request_id, request=request):
                if heard.chosen.done():
                    return []
                self._asked[request_id] = heard
                return [*self._taken(), *self.translator.asked(request_id, request)]
            case _:
                events = [*self._withdrawn(heard), *self.translator.feed(heard)]
                return [*self._taken(), *events] if self.translator.worked else events

    def _taken(self) -> list[AgentEvent]:
        """The agent works on the prompt."""
        begun, self._begun = self._begun, None
        return [begun] if begun is not None else []

    def _withdrawn(self, heard: SessionNotification) -> list[AgentEvent]:
        """What it no longer waits for: the call that it asked about is over."""
        if not (call_id := over_in(heard)):
            return []
        gone = [key for key, asked in self._asked.items() if asked.request.tool_call.tool_call_id == call_id]
        for request_id in gone:
            del self._asked[request_id]
            self.link.answer(request_id, None)
        return [Withdrawn(request_id) for request_id in gone]

    def _rest(self) -> list[AgentEvent]:
        """What was said before the end and not heard yet."""
        events = [event for heard in self.link.heard_so_far() for event in self._take(heard)]
        if self._answered:
            events = [*self._taken(), *events]
        return [*events, *self.translator.flush()]

    def _due(self, watch: Watch) -> Verdict | None:
        if self._stopping and not self.link.session_id:
            # Nothing was begun yet: what is waited for may take its time.
            return STOPPED
        reason = watch.due(busy=self.translator.busy)
        return self._cut_off(reason) if reason else None

    async def _ended(self) -> Verdict:
        process = self.link.process
        code, wrote = await process.exit_code(), await process.last_words()
        if self.link.spoke:
            return crash(self._kind.title, code, wrote)
        return no_agent(self._kind.title, code, self.link.pipe.last_words.strip() or wrote)

    def _cut_off(self, reason: Reason) -> Verdict:
        if self._stopping:
            return STOPPED
        if reason == "timeout":
            minutes = self._limits.timeout_s / 60
            text = f"Stopped after {minutes:g} minutes ({self._kind.timeout_key}): choose Continue to go on."
            return Verdict("timeout", text)
        if not self.link.spoke:
            text = f"{self._kind.title} does not answer: is its program one that speaks the Agent Client Protocol?"
            return Verdict("unavailable", text)
        return Verdict("stalled", f"{self._kind.title} stopped responding: press Continue to go on.")


def told_by(error: RequestError) -> str:
    """The agent's own words for its refusal; many put them beside a message that says nothing."""
    details = error.data.get("details") if isinstance(error.data, dict) else None
    return f"{error}: {details}" if isinstance(details, str) and details else str(error)


def _model_of(options: Sequence[SessionConfigOptionSelect | SessionConfigOptionBoolean] | None) -> str:
    """The session's model, "" where its options do not tell."""
    values = [
        one.current_value
        for one in options or ()
        if one.id == "model" and isinstance(one, SessionConfigOptionSelect)
    ]
    return next(iter(values), "")
