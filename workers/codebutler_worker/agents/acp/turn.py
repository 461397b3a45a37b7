"""AcpTurn: one prompt in a session of an agent that speaks the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

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
from codebutler_worker.agents.acp.agent import AUTH_REQUIRED, AcpAgent, judge_error, judge_stop, no_agent
from codebutler_worker.agents.acp.link import AcpLink, Pause, PermissionAsked, Received
from codebutler_worker.agents.acp.translate import AcpTranslator, is_choice, option_for, over_in
from codebutler_worker.agents.backend import (
    STOPPED,
    AgentEvent,
    Answer,
    Approval,
    Started,
    TurnRequest,
    Usage,
    Verdict,
    Withdrawn,
    crash,
)
from codebutler_worker.agents.process import ProcessTurn, TimeLimits
from codebutler_worker.agents.push_server import needs_nobody, server
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.sandbox.process import AgentProcess

log = logging.getLogger(__name__)


class AcpTurn(ProcessTurn[Received]):
    """One turn. ``usage`` and ``prompts`` are what the protocol reports. ``record_from``: the size of the agent's own
    record of the session before the turn."""

    eof_s = (2.0, 0.5)

    def __init__(
        self,
        request: TurnRequest,
        process: AgentProcess,
        access: NetworkAccess,
        clock: Clock,
        limits: TimeLimits,
        agent: AcpAgent,
    ) -> None:
        self.link = AcpLink(process, server())
        super().__init__(request, process, access, clock, limits, self.link)
        self.title = agent.title
        self.timeout_key = agent.timeout_key
        self.translator = AcpTranslator(request.workdir)
        self.usage = Usage()
        self.prompts = 0
        self.record_from = 0
        self._agent = agent
        self._unsaid: list[str] = []
        self._noticed_tokens = 0
        self._begun: Started | None = None
        """Held back until the agent shows that it has read the prompt: if it dies before, its session remembers
        nothing."""
        self._answered_prompt = False

    async def answer(self, request_id: str, answer: Answer) -> bool:
        """Reply to an Approval or Question; False if it is no longer pending.

        The protocol knows only options: text that a person added is sent when the turn would end.
        """
        asked = self.link.asked.get(request_id)
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

    async def end(self, *, at_once: bool) -> None:
        """End the process by closing its stdin, which makes these agents end along with their tools, then by force."""
        await self.link.close()
        await super().end(at_once=at_once)

    async def _begin(self) -> None:
        known, workdir = self.request.session_id or "", self.request.workdir
        self.record_from = await asyncio.to_thread(self._agent.record_bytes, known, workdir)
        self._driving = asyncio.create_task(self._drive(), name=f"drive:{self.request.turn_id}")

    async def _drive(self) -> None:
        """Send the prompt; its result is received after all messages before it."""
        try:
            verdict = await self._work()
            self._answered_prompt = self.prompts > 0
        except RequestError as error:
            self._answered_prompt = self.prompts > 0
            verdict = judge_error(error.code, told_by(error), self.title, self._agent.login)
        except ValidationError:
            text = f"{self.title} sent a message that CodeButler does not understand: update it."
            verdict = Verdict("unavailable", text)
        except ConnectionError:
            verdict = await self._ended()
        self.link.tell(STOPPED if self._stopping else verdict)

    async def _work(self) -> Verdict:
        hello = await self.link.initialize()
        if hello.protocol_version != PROTOCOL_VERSION:
            spoken = f"version {hello.protocol_version} of the Agent Client Protocol, not {PROTOCOL_VERSION}"
            return Verdict("unavailable", f"{self.title} speaks {spoken}: update it, or CodeButler.")
        if self.request.ready is not None:
            await self.request.ready()
        texts = [self.request.prompt]
        modes, is_new = await self._session(hello)
        if is_new and self.request.system_prompt:
            texts.insert(0, self.request.system_prompt)
        if not await self._choose(modes):
            return Verdict(
                "unavailable",
                f"{self.title} has no mode {self._agent.mode}: update it, or choose another.",
            )
        while True:
            # As one text, and never starting with a slash, which would be a command of the agent.
            text = "\n\n".join(texts)
            self.prompts += 1
            response = await self.link.prompt([f" {text}" if text.startswith("/") else text])
            if response.usage is not None:
                self._count(response.usage.input_tokens, response.usage.output_tokens)
            verdict = judge_stop(response.stop_reason, self.title)
            if not self._unsaid or verdict.reason != "done" or self._stopping:
                return verdict
            texts, self._unsaid = self._unsaid, []
            self.link.tell(Pause())

    async def _session(self, hello: InitializeResponse) -> tuple[SessionModeState | None, bool]:
        """The session of the request, or a new one; and whether it is new."""
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
                    "%s: the session of %s is lost: %s", self._agent.name, self.request.conversation, error
                )
            else:
                self.link.tell(Started(earlier, model=self._agent.model or _model_of(resumed.config_options)))
                return resumed.modes, False
        session = await self.link.new_session(self.request.workdir)
        # An agent without memory gets the earlier turns with each prompt, and its session has no name.
        model = self._agent.model or _model_of(session.config_options)
        self.link.tell(Started(session.session_id if remembers else "", fresh=bool(earlier), model=model))
        return session.modes, True

    async def _choose(self, modes: SessionModeState | None) -> bool:
        """Choose mode and model; False if the mode is not offered."""
        if self._agent.model:
            await self.link.set_model(self._agent.model)
        if not self._agent.mode:
            return True
        if modes is None or self._agent.mode not in {mode.id for mode in modes.available_modes}:
            return False
        if modes.current_mode_id != self._agent.mode:
            await self.link.set_mode(self._agent.mode)
        return True

    async def _receive(self, heard: Received | None) -> list[AgentEvent]:
        return self._told(heard) if heard is not None else []

    def _told(self, heard: Received) -> list[AgentEvent]:
        match heard:
            case Verdict():
                self.verdict = self.verdict or heard
                return []
            case Started():
                self._begun = heard
                return []
            case Pause():
                return [*self._taken(), *self.translator.flush()]
            case PermissionAsked(id=request_id, request=request):
                if heard.chosen.done():
                    return []
                asked = self.translator.asked(request_id, request)
                if isinstance(asked[-1], Approval) and needs_nobody(asked[-1]):
                    self.link.answer(request_id, option_for(request, allow=True))
                    del asked[-1]
                return [*self._taken(), *asked]
            case _:
                events = [*self._withdrawn(heard), *self.translator.feed(heard)]
                return [*self._taken(), *events] if self.translator.worked else events

    def _taken(self) -> list[AgentEvent]:
        """The agent has started to work on the prompt."""
        begun, self._begun = self._begun, None
        return [begun] if begun is not None else []

    def _withdrawn(self, heard: SessionNotification) -> list[AgentEvent]:
        """Requests that are obsolete because their call is over."""
        if not (call_id := over_in(heard)):
            return []
        asked = self.link.asked.items()
        gone = [key for key, each in asked if each.request.tool_call.tool_call_id == call_id]
        for request_id in gone:
            self.link.answer(request_id, None)
        return [Withdrawn(request_id) for request_id in gone]

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Run the prompt and yield its events, also those of messages received before the end."""
        async with aclosing(super().events()) as events:
            async for event in events:
                yield event
        rest = [event for heard in self.link.received_so_far() for event in self._told(heard)]
        begun = self._taken() if self._answered_prompt else []
        for event in (*begun, *rest, *self.translator.flush()):
            yield event

    async def _poll(self) -> list[AgentEvent]:
        """The usage seen by the proxy, as long as the agent itself reports none."""
        gauge = self.access.gauge
        if gauge.total == self._noticed_tokens:
            return []
        self._noticed_tokens = gauge.total
        return [Usage(gauge.input, gauge.output, self._agent.cost(gauge), max(1, self.usage.turns))]

    def _due(self) -> Verdict | None:
        if self._driving is not None and self._driving.done():
            self._driving.result()  # re-raises unexpected exceptions
        if self._stopping and not self.link.session_id:
            # Nothing has started yet: waiting may take long.
            return STOPPED
        due = self._overdue(asking=bool(self.link.asked), busy=self.translator.busy)
        if due and due.reason == "stalled" and not self.link.spoke:
            text = f"{self.title} does not answer: does its program speak the Agent Client Protocol?"
            return Verdict("unavailable", text)
        return due

    async def _interrupt(self) -> bool:
        if not self.link.session_id:
            return False
        await self.link.cancel()
        return True

    async def _ended(self) -> Verdict:
        code, wrote = await self.process.wait(2.0), await self.process.last_words()
        if self.link.spoke:
            return crash(self.title, code, wrote)
        return no_agent(self.title, code, self.link.pipe.last_words.strip() or wrote)

    def _count(self, input_tokens: int, output_tokens: int) -> None:
        used = self.usage
        self.usage = Usage(
            used.input_tokens + input_tokens, used.output_tokens + output_tokens, None, used.turns + 1
        )


def told_by(error: RequestError) -> str:
    """The agent's own reason for a refusal, which many agents put next to a generic message."""
    details = error.data.get("details") if isinstance(error.data, dict) else None
    return f"{error}: {details}" if isinstance(details, str) and details else str(error)


def _model_of(options: Sequence[SessionConfigOptionSelect | SessionConfigOptionBoolean] | None) -> str:
    """The session's model, "" if its options do not say."""
    values = [
        one.current_value
        for one in options or ()
        if one.id == "model" and isinstance(one, SessionConfigOptionSelect)
    ]
    return next(iter(values), "")
