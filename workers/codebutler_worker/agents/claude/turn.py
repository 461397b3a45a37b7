"""ClaudeTurn: one prompt in a process of Claude Code."""

from __future__ import annotations

from uuid import uuid4

from codebutler.domain.clock import Clock
from codebutler_worker.agents.backend import STOPPED, AgentEvent, Answer, Reason, TurnRequest, Usage, Verdict
from codebutler_worker.agents.claude import command
from codebutler_worker.agents.claude.commands import name_in
from codebutler_worker.agents.claude.result import crashed
from codebutler_worker.agents.claude.schema import ControlRequest, decode
from codebutler_worker.agents.claude.translate import ASK_PERSON, COST, SHELL, ClaudeTranslator, questions
from codebutler_worker.agents.process import ProcessTurn, TimeLimits, TurnWatch, metered
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.programs.process import AgentProcess

CONTINUATION_S = 5.0
"""If it stays silent this long after a result, nothing more follows."""


class ClaudeTurn(ProcessTurn[bytes | None]):
    """Receives lines, None at the end of the stream."""

    title = "Claude Code"
    timeout_key = "claude.timeout"

    def __init__(
        self,
        request: TurnRequest,
        process: AgentProcess,
        access: NetworkAccess,
        clock: Clock,
        limits: TimeLimits,
        translator: ClaudeTranslator,
    ) -> None:
        super().__init__(request, process, access, clock, limits)
        self.translator = translator
        # Read one at a time as they are handled: under a flood, lines wait in the pipe, not in our memory.
        self._lines = process.lines()
        self._answers: dict[str, dict[str, str]] = {}
        self._seen: Usage | None = None
        self.expanded = ""
        """The prompt if it names a command of the repository, in that command's words."""
        self._holds_prompt = False
        self.ran_command = False
        """Whether a message was a command of the CLI: that may end without an answer of the model."""

    @property
    def ends_at_once(self) -> bool:
        """Whether it was cut off, or background commands are left."""
        return super().ends_at_once or bool(self.translator.tasks)

    async def steer(self, text: str) -> bool:
        """Send a message into the turn; False if it no longer belongs to it, or the process does not read."""
        if self.verdict is not None or self.translator.result is not None or self._stopping:
            return False
        return await self._say(text)

    async def answer(self, request_id: str, answer: Answer) -> bool:
        """Reply to an Approval or Question; False if it is no longer pending."""
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
        return await self.process.write_line(line)

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
        return await self.process.write_line(command.allow_line(pending.request_id, answered))

    def _pass_time(self, watch: TurnWatch, now: float) -> None:
        turn = self.translator
        watch.pass_time(now, asking=bool(turn.asking), answered=turn.result is not None)

    async def _begin(self) -> None:
        await self.process.write_line(command.initialize_line(self.request.system_prompt))
        if self.request.ready is not None:
            await self.request.ready()
        if self._stopping:
            self.verdict = STOPPED
        elif name_in(self.request.prompt):
            # Whether it is a command shows when the CLI has named its own.
            self._holds_prompt = True
        else:
            await self._say(self.request.prompt)

    async def _say(self, text: str, *, may_be_command: bool = True) -> bool:
        uuid = str(uuid4())
        is_command = may_be_command and name_in(text) in (self.translator.commands or ())
        if not await self.process.write_line(command.message_line(text, uuid, is_command=is_command)):
            return False
        self.translator.sent.add(uuid)
        self.ran_command |= is_command
        return True

    async def _receive(self) -> bytes | None:
        """The next line; None at the end of the stream."""
        return await anext(self._lines, None)

    async def _take(self, heard: bytes | None) -> list[AgentEvent]:
        if heard is None:
            self.verdict = await self._ended()
            return []
        if not heard.strip():
            return []
        line = decode(heard)
        events = self.translator.feed(line)
        if isinstance(line, ControlRequest) and line.request_id not in self.translator.asking:
            await self.process.write_line(command.unsupported_line(line.request_id))
        if self.translator.refused:
            text = f"Claude Code did not accept its instructions: {self.translator.refused}"
            self.verdict = Verdict("unavailable", text)
        elif self._holds_prompt and (commands := self.translator.commands) is not None:
            self._holds_prompt = False
            if self.expanded and name_in(self.request.prompt) not in commands:
                # The repository's words are no person's: they name no command.
                await self._say(self.expanded, may_be_command=False)
            else:
                await self._say(self.request.prompt)
        elif self.translator.settled:
            self.verdict = STOPPED if self._stopping else self.translator.verdict()
        return events

    async def _look(self) -> list[AgentEvent]:
        """Ask for the cost so far; report the usage seen by the proxy if it is far more than the CLI reports, and more
        than before."""
        if self.translator.meter.wants_price():
            # It answers this even while a tool runs.
            await self.process.write_line(command.control_line(COST, {"subtype": "get_session_cost"}))
        told = self.translator.meter.usage
        seen = metered(told, self.access.gauge)
        if seen in (told, self._seen):
            return []
        self._seen = seen
        return [seen]

    def _due(self, watch: TurnWatch) -> Verdict | None:
        match reason := due(self.translator, watch, self._limits.background_s):
            case None:
                return None
            case "done":
                return self.translator.verdict()
            case _:
                return self._cut_off(reason)

    async def _ended(self) -> Verdict:
        if self._stopping:
            return STOPPED
        said = self.translator.verdict()
        return said or crashed(await self.process.wait(2.0), await self.process.last_words())

    async def _interrupt(self) -> bool:
        """It answers with a result, and stays alive."""
        line = command.control_line(f"interrupt-{uuid4()}", {"subtype": "interrupt"})
        return await self.process.write_line(line)


def due(turn: ClaudeTranslator, watch: TurnWatch, background_s: float) -> Reason | None:
    """Why the turn must end now: "done" when only what may be cut off is left. A result may be followed by more."""
    # The report of a background subagent is part of the answer.
    answered = turn.result is not None and all(kind == SHELL for kind in turn.tasks.values())
    if (reason := watch.due(busy=turn.busy or answered)) or not answered:
        return reason
    if turn.tasks:
        return "done" if watch.answered_s >= background_s else None
    return "done" if watch.silent_s >= CONTINUATION_S else None
