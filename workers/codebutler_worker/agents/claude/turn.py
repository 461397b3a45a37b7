"""ClaudeTurn: one prompt in a process of Claude Code."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec

from codebutler_worker.agents.backend import STOPPED, AgentEvent, Answer, Usage, Verdict
from codebutler_worker.agents.claude.commands import accepted, name_in
from codebutler_worker.agents.claude.schema import ControlRequest, crashed, decode
from codebutler_worker.agents.claude.translate import (
    ASK_PERSON,
    COST,
    INITIALIZE,
    SHELL,
    ClaudeTranslator,
    questions,
)
from codebutler_worker.agents.process import ProcessTurn, metered

CONTINUATION_S = 5.0
"""If it stays silent this long after a result, nothing more follows."""


@dataclass(eq=False, repr=False)
class ClaudeTurn(ProcessTurn[bytes]):
    """Receives lines.

    ``expanded``: the prompt if it names a command of the repository, in that command's words. ``ran_command``: whether
    a message was a command of the CLI, which may end without an answer of the model.
    """

    title = "Claude Code"
    timeout_key = "claude.timeout"

    translator: ClaudeTranslator
    expanded: str = ""
    ran_command: bool = False
    _answers: dict[str, dict[str, str]] = field(default_factory=dict, init=False)
    _seen: Usage | None = field(default=None, init=False)
    _answered_s: float = field(default=math.inf, init=False)
    """When it gave a result, infinite before."""
    _holds_prompt: bool = field(default=False, init=False)
    _has_prompt: bool = field(default=False, init=False)

    async def steer(self, text: str) -> bool:
        """Send a message into the turn; False if it does not belong to it yet or any more, or the process does not
        read."""
        over = self.verdict is not None or self.translator.result is not None or self._stopping
        if over or not self._has_prompt:
            return False
        return await self._say(text)

    async def answer(self, request_id: str, answer: Answer) -> bool:
        """Reply to an Approval or Question; False if it is no longer pending."""
        call_id, _, number = request_id.partition("#")
        pending = self.translator.asking.get(call_id)
        if pending is None:
            return False
        if answer.allow and pending.request.tool_name == ASK_PERSON and number:
            return await self._answer_question(pending, number, answer.text)
        del self.translator.asking[call_id]
        if answer.allow:
            return await self._allow(call_id, pending.request.input)
        denied = {"behavior": "deny", "message": answer.text or "Denied by the person in charge."}
        return await self._reply(call_id, "success", response=denied)

    async def _answer_question(self, pending: ControlRequest, number: str, text: str) -> bool:
        asked = questions(pending.request.input)
        if not number.isdigit() or int(number) >= len(asked):
            return False
        given = self._answers.setdefault(pending.request_id, {})
        given[str(asked[int(number)].get("question", ""))] = text
        if len(given) < len({str(each.get("question", "")) for each in asked}):
            return True
        del self.translator.asking[pending.request_id]
        return await self._allow(pending.request_id, {**pending.request.input, "answers": given})

    async def _allow(self, request_id: str, given: dict[str, Any]) -> bool:
        """Allow the call with exactly this input; no rule is remembered."""
        return await self._reply(request_id, "success", response={"behavior": "allow", "updatedInput": given})

    async def _begin(self) -> None:
        # Here, because an argument is limited to 128 KiB and every user of the machine can read it.
        appended = {"appendSystemPrompt": self.request.system_prompt} if self.request.system_prompt else {}
        request = {"subtype": "initialize", "hooks": None, **appended}
        await self._send("control_request", request_id=INITIALIZE, request=request)
        if self.request.ready is not None:
            await self.request.ready()
        if self._stopping:
            self.verdict = STOPPED
        elif self.request.prompt.startswith("/") and name_in(self.request.prompt):
            # Whether it is a command shows when the CLI has named its own.
            self._holds_prompt = True
        else:
            self._has_prompt = await self._say(self.request.prompt)

    async def _say(self, text: str, *, may_be_command: bool = True) -> bool:
        """Send a person's message. A leading slash makes it a command of the CLI; after a space it is text."""
        uuid, is_command = str(uuid4()), False
        if text.startswith("/"):
            is_command = may_be_command and name_in(text) in accepted(self.translator.offered)
            text = text if is_command else f" {text}"
        message = {"role": "user", "content": text}
        if not await self._send("user", message=message, uuid=uuid, parent_tool_use_id=None):
            return False
        self.translator.sent.add(uuid)
        self.ran_command |= is_command
        return True

    async def _reply(self, request_id: str, subtype: str, **given: Any) -> bool:
        response = {"subtype": subtype, "request_id": request_id, **given}
        return await self._send("control_response", response=response)

    async def _send(self, kind: str, **given: Any) -> bool:
        """Send one message on one line; False if the process does not read."""
        line = msgspec.json.encode({"type": kind, **given})
        # A JavaScript reader would take U+2028 and U+2029 for line ends.
        line = line.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
        return await self.process.write_line(line)

    async def _receive(self, data: bytes | None) -> list[AgentEvent]:
        if data is None:
            self.verdict = await self._ended()
            return []
        if not data.strip():
            return []
        line = decode(data)
        turn, prompt = self.translator, self.request.prompt
        events = turn.feed(line)
        self.leaves_work = bool(turn.tasks)
        self._answered_s = math.inf if turn.result is None else min(self._answered_s, self._checked_s)
        if isinstance(line, ControlRequest) and line.request_id not in turn.asking:
            # We do not support it, but the CLI must not wait.
            await self._reply(line.request_id, "error", error="not supported")
        if turn.refused:
            text = f"Claude Code did not accept its instructions: {turn.refused}"
            self.verdict = Verdict("unavailable", text)
        elif self._holds_prompt and turn.is_initialized:
            self._holds_prompt = False
            # The repository's words are no person's: they name no command.
            is_ours = bool(self.expanded) and name_in(prompt) not in accepted(turn.offered)
            said = self.expanded if is_ours else prompt
            self._has_prompt = await self._say(said, may_be_command=not is_ours)
        elif turn.settled:
            self.verdict = STOPPED if self._stopping else turn.verdict()
        return events

    async def _poll(self) -> list[AgentEvent]:
        """Ask for the cost so far; report the usage seen by the proxy if it is far more than the CLI reports, and more
        than before."""
        meter = self.translator.meter
        if meter.asks:
            meter.asks -= 1
            # It answers this even while a tool runs.
            await self._send("control_request", request_id=COST, request={"subtype": "get_session_cost"})
        seen = metered(meter.usage, self.access.gauge)
        if seen in (meter.usage, self._seen):
            return []
        self._seen = seen
        return [seen]

    def _due(self) -> Verdict | None:
        """A result may be followed by more; what may be cut off then has a limit of its own."""
        turn = self.translator
        # The report of a background subagent is part of the answer.
        answered = turn.result is not None and all(kind == SHELL for kind in turn.tasks.values())
        due = self._overdue(asking=bool(turn.asking), busy=bool(turn.running or turn.tasks or answered))
        if due is not None or not answered:
            return due
        if turn.tasks:
            return turn.verdict() if self._checked_s - self._answered_s >= self.limits.background_s else None
        return turn.verdict() if self._silent_s >= CONTINUATION_S else None

    async def _ended(self) -> Verdict:
        if self._stopping:
            return STOPPED
        said = self.translator.verdict()
        return said or crashed(await self.process.wait(2.0), await self.process.last_words())

    async def _interrupt(self) -> bool:
        """It answers with a result, and stays alive."""
        request_id, request = f"interrupt-{uuid4()}", {"subtype": "interrupt"}
        return await self._send("control_request", request_id=request_id, request=request)
