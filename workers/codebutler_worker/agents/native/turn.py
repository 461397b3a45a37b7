"""One turn of the built-in agent: does what the loop decides, and reports it as events."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from msgspec import Struct, structs
from msgspec.structs import replace

from codebutler.domain.clock import Clock
from codebutler_worker.agents.backend import (
    AgentEvent,
    Plan,
    Refusal,
    Started,
    Text,
    Thinking,
    ToolResult,
    TurnRequest,
    Usage,
    Writing,
)
from codebutler_worker.agents.native import cleaning, loop
from codebutler_worker.agents.native.acting import Acting, AgentLog, CallDone
from codebutler_worker.agents.native.loop import AskModel, Leave, LoopLimits, Progress, RunCall
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    Message,
    Model,
    ModelError,
    ModelReply,
    ModelRequest,
    ToolCall,
    ToolMessage,
    UserMessage,
    complete,
)
from codebutler_worker.agents.native.sessions import (
    INTERRUPTED,
    CleanedRecord,
    PlannedRecord,
    Session,
    StoodRecord,
)
from codebutler_worker.agents.running import Waits, following
from codebutler_worker.tools.repair import as_json

NOTHING = "(done)"
"""Stands for an empty result, which some services refuse."""
NOT_DONE = "(not done: the turn ended before)"
MOST_ATTEMPTS = 5
"""How often room is made for one request; each time the target is halved."""
GROWN = 1.25
TOO_SMALL = (
    "the model's context ({context} tokens) is smaller than the agent's instructions and tools: start the service "
    "with a larger context, or choose another native.model"
)


class Thinker(Struct, frozen=True, kw_only=True):
    """The model, its context size and its cost. ``cost`` is in USD, None if unknown."""

    model: Model
    context: int
    cost: Callable[[ModelReply], float | None]


class NativeTurn:
    """One turn: call ``events`` once. Afterwards ``progress`` and ``leave`` say how it went."""

    def __init__(
        self, request: TurnRequest, thinker: Thinker, acting: Acting, session: Session, limits: LoopLimits
    ) -> None:
        self.progress = Progress()
        self.leave: Leave | None = None
        self._request = request
        self._thinker = thinker
        self._acting = acting
        self._session = session
        self._limits = limits
        self._log: AgentLog = acting.log
        self._clock: Clock = acting.clock
        self._waits: Waits = acting.waits
        self._gauge = cleaning.TokenEstimate(fixed=acting.definition_tokens)
        self._context = thinker.context
        self._left = 0
        """The tokens that were left when room was last made."""

    @property
    def usage(self) -> Usage:
        """What it has used so far."""
        spent, tokens = self.progress.cost_usd if self.progress.turns else None, self.progress.tokens
        return Usage(tokens.input, tokens.output, spent, self.progress.turns)

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """All events until the loop ends. Raises ModelError, StoreError and CutOffError."""
        self._waits.listens = True
        yield Started(self._session.id, self._session.fresh, self._thinker.model.name)
        if all(step.state == "done" for step in self._session.history.plan):
            await self._session.keep(PlannedRecord(()))
        else:
            yield Plan(self._session.history.plan)
        await self._session.say(UserMessage(self._request.prompt))
        try:
            while True:
                await self._hear()
                step = loop.step(self.progress, self._limits)
                match step:
                    case Leave():
                        self.leave = step
                        return
                    case RunCall(call):
                        events = self._act(call)
                    case AskModel(nudge):
                        events = self._think(nudge)
                async with aclosing(events):
                    async for event in events:
                        yield event
        finally:
            self._waits.listens = False

    async def close(self, terminal_cwd: str) -> None:
        """Settle open calls, so that the session can be resumed."""
        open_ = self.progress.open
        first = NOT_DONE if self.leave is not None else INTERRUPTED
        told = [ToolMessage(call.id, first if at == 0 else NOT_DONE) for at, call in enumerate(open_)]
        await self._session.say(*told)
        if terminal_cwd != self._session.history.cwd:
            await self._session.keep(StoodRecord(terminal_cwd))

    async def _hear(self) -> None:
        """Add what people said meanwhile, once no call is waiting for its result."""
        said = self._waits.said
        if not said or self.progress.open:
            return
        self._waits.said = []
        await self._session.say(*(UserMessage(text) for text in said))
        self.progress = loop.steered(self.progress)

    async def _think(self, nudge: str) -> AsyncGenerator[AgentEvent]:
        if nudge:
            await self._session.say(UserMessage(nudge))
        size = self._gauge.of(self._session.messages)
        # If little fits besides the system prompt, it is always too full: make room only once it has grown since.
        if size > GROWN * self._left and cleaning.too_full(
            self._session.messages, self._gauge, self._context
        ):
            await self._make_room(self._context)
        for attempt in itertools.count(1):
            try:
                async with aclosing(self._ask()) as events:
                    async for event in events:
                        yield event
            except ModelError as error:
                if error.trouble != "too_long" or attempt == MOST_ATTEMPTS:
                    raise
                # The context is smaller than we assumed: use what the service says, or else half.
                self._context = min(self._context, error.context or self._context)
                size, orders = (self._gauge.of(self._session.messages[:end]) for end in (None, 1))
                if orders > self._context:
                    raise ModelError("refused", TOO_SMALL.format(context=self._context)) from error
                await self._make_room(min(self._context, size), desperate=attempt > 1)
            else:
                return

    async def _ask(self) -> AsyncGenerator[AgentEvent]:
        prompt = ModelRequest(self._session.messages, self._acting.definitions)
        began_s = self._clock.monotonic()
        async with aclosing(self._thinker.model.ask(prompt)) as answers:
            while isinstance(
                event := await self._waits.work(following(answers)), Refusal | Writing | Thinking
            ):
                if isinstance(event, Refusal):
                    self._log.noted("waiting", event.text)
                yield event
        if event is None:
            raise ModelError("unreachable", "the model service ended without an answer")
        if event.tokens.input:
            self._gauge = self._gauge.counted(prompt.messages, event.tokens.input)
        event = self._priced(event, prompt)
        self._log.asked(
            self._thinker.model.name,
            event.tokens,
            self._clock.monotonic() - began_s,
            len(event.said.calls),
        )
        await self._take(event)
        if event.said.reasoning:
            yield Thinking(event.said.reasoning)
        if event.said.content.strip():
            yield Text(event.said.content)
        yield self.usage
        for asked in self._acting.foreseen(self.progress.open):
            yield asked

    async def _take(self, reply: ModelReply) -> None:
        """The answer goes into the session before it is acted on."""
        said = unique(reply.said, self._session.messages)
        said = with_calls(said, lambda call: structs.replace(call, name=self._acting.named(call.name)))
        if said.content.strip() or said.calls:
            # Services parse old messages too: some refuse a conversation whose arguments are not valid JSON.
            await self._session.say(
                with_calls(said, lambda call: structs.replace(call, arguments=as_json(call.arguments)))
            )
        reply = replace(reply, said=said)
        self.progress = loop.replied(self.progress, reply, self._thinker.cost(reply))

    async def _act(self, call: ToolCall) -> AsyncGenerator[AgentEvent]:
        async with aclosing(self._acting.events(call, self._session.history.plan)) as events:
            async for event in events:
                if not isinstance(event, CallDone):
                    yield event
                    continue
                result = event.result
                await self._session.keep(*event.records)
                after = loop.acted(self.progress, result.text, valid=event.valid, again=event.again)
                warning = [loop.REPEATED] if loop.repeats(after) else []
                await self._session.say(ToolMessage(call.id, "\n".join([result.text or NOTHING, *warning])))
                self.progress = after
                if event.end is not None and not self._waits.said:
                    self.progress = loop.ended(self.progress, event.end.text, needs_user=event.end.needs_user)
                self._log.called(call, result, event.duration_s)
                good = result.ok and result.exit_code in (None, 0)
                yield ToolResult(event.use_id, good, result.text)

    def _priced(self, reply: ModelReply, prompt: ModelRequest) -> ModelReply:
        """With the usage that the service reports, or our estimate: an answer without a cost would meet no limit."""
        told, reckoned = reply.tokens, self._gauge.used(prompt.messages, reply.said)
        used = structs.replace(
            told, input=told.input or reckoned.input, output=told.output or reckoned.output
        )
        return replace(reply, tokens=used)

    async def _make_room(self, context: int, *, desperate: bool = False) -> None:
        """Shorten old results; if that is not enough, summarize the beginning. ``desperate``: even recent results are
        shortened, and messages that are too long lose their middle."""
        before = self._gauge.of(self._session.messages)
        recent = 0 if desperate else cleaning.RECENT
        messages = cleaning.shrunk(self._session.messages, self._gauge, context, recent)
        if desperate:
            messages = cleaning.clipped(messages, self._gauge, context)
        at = cleaning.cut_at(messages, self._gauge, context)
        if at > 2 and (desperate or cleaning.too_full(messages, self._gauge, context)):
            summary = await self._summary(messages[:at], context)
            plan, asked = self._session.history.plan, self._request.prompt
            messages = cleaning.summed_up(messages, at, summary, plan, asked)
        if desperate:
            messages = cleaning.clipped(messages, self._gauge, context)
        await self._session.keep(CleanedRecord(messages))
        self._left = self._gauge.of(messages)
        self._log.noted("cleaned", f"{before} tokens became {self._left}")

    async def _summary(self, messages: tuple[Message, ...], context: int) -> str:
        """A short summary of the conversation so far, "" if the model fails; retried with less if all of it is too
        much."""
        for attempt in (messages, cleaning.clipped(messages, self._gauge, context // 2)):
            # With the tools, although it must not use them: gateways to Bedrock refuse calls without them, and so the
            # beginning of the request is in the service's cache (BerriAI/litellm #24158).
            prompt = ModelRequest((*attempt, UserMessage(cleaning.SUMMARY_ORDER)), self._acting.definitions)
            try:
                reply = await self._waits.work(complete(self._thinker.model, prompt))
            except ModelError as error:
                self._log.noted("no summary", str(error))
                if error.trouble != "too_long":
                    return ""
            else:
                if text := self._paid(self._priced(reply, prompt)):
                    return text
        return ""

    def _paid(self, reply: ModelReply) -> str:
        """Paid for like any other answer, but not a step of the turn."""
        tokens = self.progress.tokens + reply.tokens
        cost, before = self._thinker.cost(reply), self.progress.cost_usd
        total = None if cost is None or before is None else before + cost
        self.progress = replace(self.progress, tokens=tokens, cost_usd=total)
        return reply.said.content


def with_calls(said: AssistantMessage, changed: Callable[[ToolCall], ToolCall]) -> AssistantMessage:
    """The same message with other calls."""
    return structs.replace(said, calls=tuple(changed(call) for call in said.calls))


def unique(said: AssistantMessage, before: Sequence[Message]) -> AssistantMessage:
    """With ids for its calls that no earlier call has: some services number the calls of each answer from the start."""
    known = {call.id for message in before if isinstance(message, AssistantMessage) for call in message.calls}
    calls = []
    for at, call in enumerate(said.calls):
        number, call_id = len(before) * 100 + at, call.id
        while not call_id or call_id in known:
            # The format that Mistral wants: nine letters and digits.
            call_id, number = f"c{number:08}", number + 1
        known.add(call_id)
        calls.append(structs.replace(call, id=call_id))
    return AssistantMessage(said.content, tuple(calls), said.reasoning)
