"""ClaudeBackend: Claude Code behind the AgentBackend port.

One process per turn: what it or its tools left running must not outlive the turn, and the next turn resumes the
session by its id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from codebutler.config.schema import ClaudeSection
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.lookup import path_of
from codebutler_worker.agents.backend import (
    STOPPED,
    AgentEvent,
    Answer,
    Finished,
    TurnRequest,
    Usage,
    Verdict,
)
from codebutler_worker.agents.claude import command
from codebutler_worker.agents.claude.probe import find_binary, probe
from codebutler_worker.agents.claude.translate import Translator
from codebutler_worker.agents.claude.turn import LiveSession, Turn
from codebutler_worker.agents.instructions import repository_says
from codebutler_worker.agents.record import SessionLog
from codebutler_worker.agents.running import AgentContext, Limits, RunningTurns, metered
from codebutler_worker.egress.outlet import noted
from codebutler_worker.egress.way import new_token
from codebutler_worker.sandbox.person import make_directories

log = logging.getLogger(__name__)

INSTRUCTIONS = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
"""``--setting-sources user`` keeps a hostile checkout's settings from running, and drops these as well (Claude Code
2.1.328). Their text still belongs to the agent, so it travels in the system prompt."""


class ClaudeBackend:
    """Runs turns through Claude Code.

    ``agent_env`` may hold the CLI's credentials and proxies (command.PASSED_ON) and the PATH of the CLI and
    its tools; else the worker's own PATH is used.
    """

    name = "claude"
    waits_until_ready = True

    def __init__(
        self,
        settings: ClaudeSection,
        context: AgentContext,
        home: Path,
        agent_env: Mapping[str, str],
        limits: Limits | None = None,
    ) -> None:
        self._settings = settings
        self._context = context
        self._home = home
        self._agent_env = agent_env
        self._path = path_of(agent_env)
        self._limits = limits or Limits(settings.timeout * 60)
        self._running: RunningTurns[Turn] = RunningTurns(context.clock, context.logs)
        self._around: command.Surroundings | None = None
        self._probing = asyncio.Lock()

    def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the turn. Closing the iterator early stops the turn and everything it started."""
        return self._running.run(turn, self._with_second_try)

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:
        """Reply to a pending Approval or Question; False if nobody waits for it any more."""
        turn = self._running.listener(turn_id)
        return turn is not None and await turn.answer(request_id, answer)

    async def steer(self, turn_id: str, text: str) -> bool:
        """Put text into the running turn; False if it cannot take it any more."""
        turn = self._running.listener(turn_id)
        return turn is not None and turn.listens and await turn.say(text)

    async def stop(self, turn_id: str) -> None:
        """Interrupt the turn; its stream ends with Finished(reason="stopped") within 5 s."""
        if turn := self._running.stop(turn_id):
            await turn.stop()

    async def close(self) -> None:
        """End every process."""
        await asyncio.gather(*(turn.stop() for turn in self._running.close()))
        await self._running.ended()

    async def _with_second_try(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        """The turn in the session it names; if that one is lost, once more in a fresh one."""
        lost = turn.session_id is not None and not is_session_id(turn.session_id)
        if not lost:
            async with aclosing(self._attempt(turn, record)) as events:
                async for event in events:
                    lost = isinstance(event, Finished) and event.reason == "session_lost"
                    if not lost:
                        yield event
        if lost:
            log.warning("the session of %s cannot be resumed: beginning a fresh one", turn.conversation)
            fresh = replace(turn, session_id=None, cost_before_usd=0.0)
            async with aclosing(self._attempt(fresh, record, fresh=True)) as events:
                async for event in events:
                    yield event

    async def _attempt(
        self, request: TurnRequest, record: SessionLog, *, fresh: bool = False
    ) -> AsyncGenerator[AgentEvent]:
        """One run in one session. Ends with Finished; reason "session_lost" only if nothing was done yet."""
        session_id = request.session_id or self._new_id(request, fresh=fresh)
        self._running.claim(session_id)
        session: LiveSession | None = None
        at_once = True
        try:
            session = await self._open(request, session_id, record)
            translator = Translator(
                request.workdir, request.cost_before_usd, session_id=session_id, fresh=fresh
            )
            turn = Turn(request, session, translator, self._context.clock, self._limits)
            if request.ready is not None:
                await request.ready()
            if self._running.unwanted(request.turn_id):
                yield Finished(ok=False, text=STOPPED.text, reason=STOPPED.reason)
                return
            with self._running.heard_by(request.turn_id, turn):
                async with aclosing(turn.events()) as events:
                    async for event in events:
                        yield metered(event, session.gauge) if isinstance(event, Usage) else event
            verdict = self._verdict(turn)
            at_once = verdict.reason not in ("done", "max_turns") or bool(translator.tasks)
            # The answer does not wait for the process; whoever reads on until the end does.
            finished = translator.finished(verdict)
            finished = replace(finished, usage=metered(finished.usage, session.gauge))
            if finished.ok and session.way is not None:
                finished = replace(finished, text=noted(finished.text, session.way.refused))
            yield finished
        except CodeButlerError as error:
            yield Finished(ok=False, text=str(error), reason="unavailable")
        finally:
            await self._running.release({session_id}, _end(session, at_once), f"end:{session_id}")

    def _verdict(self, turn: Turn) -> Verdict:
        """The turn's verdict; a resumed session that failed before it did anything is lost."""
        verdict = turn.verdict
        assert verdict is not None
        if turn.translator.ignored or turn.session.process.dropped_lines:
            ignored, dropped = turn.translator.ignored, turn.session.process.dropped_lines
            log.debug("claude: %d lines of unknown types, %d over-long lines", ignored, dropped)
        if verdict.reason in ("failed", "session_lost") and (hit := turn.session.process.limit_hit):
            return Verdict("failed", hit)
        if turn.request.session_id and not turn.translator.worked and poisoned(turn, verdict):
            return Verdict("session_lost", verdict.text)
        return Verdict("failed", verdict.text) if verdict.reason == "session_lost" else verdict

    def _new_id(self, request: TurnRequest, *, fresh: bool) -> str:
        """The id of a new session: always the same for the same thread, unless that one was used before."""
        named = str(uuid5(NAMESPACE_URL, request.session_name))
        sessions = command.sessions(self._home / ".claude", request.workdir)
        if fresh or not request.session_name or (sessions / f"{named}.jsonl").exists():
            return str(uuid4())
        return named

    async def _open(self, request: TurnRequest, session_id: str, record: SessionLog) -> LiveSession:
        """A process for the turn. Raises CodeButlerError if there can be none."""
        around = await self._surroundings(request.workdir)
        instructions = ""
        if not self._settings.project_settings:
            instructions = await asyncio.to_thread(repository_says, request.workdir, INSTRUCTIONS)
        parts = (request.system_prompt, self._context.outlet.told(), instructions)
        service = command.service_of(self._agent_env, new_token())
        needed = () if service else command.LOGIN_HOSTS
        way = await self._context.outlet.open(request.workdir, service, needed)
        try:
            env = {**command.model_environment(self._agent_env, service, way.port), **way.env}
            claude = around.home / ".claude"
            for directory in (command.sessions(claude, request.workdir), command.tasks(claude, session_id)):
                make_directories(around.home, directory)
            resume = request.session_id is not None
            words = command.argv(self._settings, around.binary, session_id, resume=resume)
            policy = command.policy(around, request.workdir, session_id, way.network, env)
            policy = replace(policy, conversation=request.conversation)
            launch = self._context.sandbox.wrap(words, policy)
            session = await LiveSession.open(launch, "\n\n".join(filter(None, parts)), record.write)
        except BaseException:  # a stop too: the way is nobody's then
            await way.close()
            raise
        session.way = way
        return session

    async def _surroundings(self, workdir: Path) -> command.Surroundings:
        """Found and probed once; raises AgentUnavailableError (and looks again next time)."""
        async with self._probing:
            if self._around is None:
                binary = find_binary(self._settings.binary, self._path, workdir, self._home)
                around = command.Surroundings(binary, self._home, self._path, self._agent_env)
                if note := await probe(binary, command.environment(around), workdir):
                    log.warning(note)
                self._around = around
            return self._around


async def _end(session: LiveSession | None, at_once: bool) -> None:
    if session is not None:
        await session.end(at_once=at_once)
        if hit := session.process.limit_hit:
            log.warning("claude: %s", hit)


def is_session_id(text: str) -> bool:
    """A UUID, and so nothing that could be read as an option."""
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def poisoned(turn: Turn, verdict: Verdict) -> bool:
    """Nothing but the session itself explains this failure (the model was never heard)."""
    if verdict.reason == "session_lost":
        return True
    result = turn.translator.result
    if result is None:
        return verdict.reason == "failed"
    if result.api_error_status == 400 and verdict.reason == "failed":
        return True
    return (
        result.num_turns == 0 and not (result.result or "").strip() and verdict.reason in ("done", "failed")
    )
