"""AcpBackend: an agent that speaks the Agent Client Protocol, behind the AgentBackend port.

One process per turn: what it or its tools left running must not outlive the turn, and the next turn resumes the
session by its id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from codebutler.domain.errors import CodeButlerError
from codebutler_worker.agents.acp.kind import Account, Kind
from codebutler_worker.agents.backend import (
    STOPPED,
    AgentEvent,
    Answer,
    Finished,
    Started,
    TurnRequest,
    Usage,
    Verdict,
)
from codebutler_worker.agents.record import SessionLog, SessionLogs
from codebutler_worker.agents.running import AgentContext, Limits, RunningTurns, metered
from codebutler_worker.egress.outlet import noted
from codebutler_worker.egress.way import new_token

if TYPE_CHECKING:
    from codebutler_worker.agents.acp.link import Link
    from codebutler_worker.agents.acp.turn import Turn

HURRY_S = 1.0
STOP_S = 1.5
log = logging.getLogger(__name__)


class AcpBackend:
    """Runs turns through one kind of such agents."""

    waits_until_ready = True
    logs: SessionLogs | None = None
    """Where each turn's raw stream is kept."""

    def __init__(self, kind: Kind, context: AgentContext, limits: Limits | None = None) -> None:
        self.name = kind.name
        self._kind = kind
        self._context = context
        self._limits = limits or Limits(kind.timeout_s, stop_s=STOP_S)
        self._running: RunningTurns[Turn] = RunningTurns(context.clock, context.logs)

    def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the turn. Closing the iterator early stops the turn and everything it started."""
        return self._running.run(turn, self._attempt)

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:
        """Reply to a pending Approval or Question; False if nobody waits for it any more."""
        turn = self._running.listener(turn_id)
        return turn is not None and await turn.answer(request_id, answer)

    async def steer(self, turn_id: str, text: str) -> bool:  # noqa: ARG002 - the port's
        """The protocol has no way to say something into a running turn: it is queued."""
        return False

    async def stop(self, turn_id: str) -> None:
        """Cancel the turn; its stream ends with Finished(reason="stopped") within 5 s."""
        if turn := self._running.stop(turn_id):
            await turn.stop()

    async def close(self) -> None:
        """End every process."""
        await asyncio.gather(*(turn.stop() for turn in self._running.close()))
        await self._running.ended()

    async def _attempt(self, request: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        if request.session_id:
            self._running.claim(request.session_id)
        link: Link | None = None
        at_once = True
        try:
            turn = await self._open(request, record)
            link = turn.link
            before = await self._recorded(request, request.session_id or "")
            with self._running.heard_by(request.turn_id, turn):
                if self._running.unwanted(request.turn_id):
                    turn.verdict = STOPPED
                async with aclosing(turn.events()) as events:
                    async for event in events:
                        if isinstance(event, Started) and event.session_id:
                            self._running.claim(event.session_id)
                            before = before if event.session_id == request.session_id else 0
                        yield event
            at_once = turn.verdict is None or turn.verdict.reason != "done"
            # The answer does not wait for the process; whoever reads on until the end does.
            yield await self._finished(turn, before)
        except CodeButlerError as error:
            yield Finished(ok=False, text=str(error), reason="unavailable")
        finally:
            sessions = {request.session_id, link.session_id if link else None}
            held = {each for each in sessions if each}
            await self._running.release(held, _end(link, at_once=at_once), f"end:{request.turn_id}")

    async def _open(self, request: TurnRequest, record: SessionLog) -> Turn:
        """A process for the turn. Raises CodeButlerError if there can be none."""
        service = self._kind.service(new_token())
        way = await self._context.outlet.open(request.workdir, service, () if service else self._kind.hosts)
        try:
            launch = await self._kind.launch(self._context.sandbox, request, way, service)
            await asyncio.to_thread(import_module, "acp")
            from codebutler_worker.agents.acp.link import Link
            from codebutler_worker.agents.acp.turn import Turn

            link = await Link.open(launch, record.write)
        except BaseException:  # a stop too: the way is nobody's then
            await way.close()
            raise
        link.way = way
        prompt = "\n\n".join(filter(None, (request.system_prompt, self._context.outlet.told())))
        request = replace(request, system_prompt=prompt)
        return Turn(request, link, self._kind, self._context.clock, self._limits)

    async def _recorded(self, request: TurnRequest, session_id: str) -> int:
        if not session_id:
            return 0
        return await asyncio.to_thread(self._kind.recorded_bytes, session_id, request.workdir)

    async def _finished(self, turn: Turn, before: int) -> Finished:
        """What came of it: the agent's word, unless its own record or the limits around it know better."""
        verdict, link = turn.verdict, turn.link
        assert verdict is not None
        if link.ignored or link.process.dropped_lines:
            log.debug(
                "%s: %d messages not understood, %d over-long lines",
                self.name,
                link.ignored,
                link.process.dropped_lines,
            )
        account = await self._account(turn, before)
        if account is not None and account.ended < turn.prompts:
            # What it has not written down yet, it does as it ends. Who stops a turn does not wait long for that.
            early = link.end(at_once=not verdict.ok)
            ending = self._running.end({link.session_id}, early, f"end early:{turn.request.turn_id}")
            await asyncio.wait({ending}, timeout=None if verdict.ok else HURRY_S)
            account = await self._account(turn, before)
        if verdict.reason == "done":
            verdict = self._doubted(turn, account)
        if link.process.limit_hit:
            log.warning("%s: %s", self.name, link.process.limit_hit)
            verdict = Verdict("failed", link.process.limit_hit) if verdict.reason == "failed" else verdict
        refused = link.way.refused if link.way is not None else ()
        text = noted(turn.translator.answer.text, refused) if verdict.ok else verdict.text
        total = turn.translator.cost_usd
        usage = self._usage(turn, account)
        return Finished(ok=verdict.ok, text=text, reason=verdict.reason, usage=usage, total_cost_usd=total)

    async def _account(self, turn: Turn, before: int) -> Account | None:
        session_id, workdir = turn.link.session_id, turn.request.workdir
        if not session_id:
            return None
        return await asyncio.to_thread(self._kind.account, session_id, workdir, before)

    def _doubted(self, turn: Turn, account: Account | None) -> Verdict:
        """An end without a word, or one that the agent's own record contradicts, is no success."""
        if account is not None and account.failure is not None:
            return account.failure
        if turn.translator.worked:
            return Verdict("done", "")
        text = f"{self._kind.title} ended without an answer: its model service may have failed; see `!logs`."
        return Verdict("failed", text)

    def _usage(self, turn: Turn, account: Account | None) -> Usage:
        usage, total = turn.usage, turn.translator.cost_usd
        if account is not None and usage == Usage():
            usage = Usage(account.input_tokens, account.output_tokens, account.cost_usd, account.turns)
        if total is not None:
            usage = replace(usage, cost_usd=max(0.0, total - turn.request.cost_before_usd))
        return metered(usage, turn.link.way.gauge if turn.link.way is not None else None)


async def _end(link: Link | None, *, at_once: bool) -> None:
    if link is not None:
        await link.end(at_once=at_once)
