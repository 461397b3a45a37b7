"""AcpBackend: an agent that speaks the Agent Client Protocol, behind the AgentBackend port."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from codebutler.config.schema import CommandRule, Config, KimiSection, RepoSettings
from codebutler.domain.clock import Clock
from codebutler_worker.agents.acp.agent import AcpAgent, TurnRecord
from codebutler_worker.agents.acp.kimi import Kimi, ask_version, judge
from codebutler_worker.agents.backend import Finished, TurnRequest, Usage, Verdict
from codebutler_worker.agents.process import ProcessBackend, TimeLimits
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.session_logs import SessionLog
from codebutler_worker.agents.survey import Survey, dotted, survey_of, version_in
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.egress.service import ModelService
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.sandbox.process import AgentProcess

if TYPE_CHECKING:
    from codebutler_worker.agents.acp.turn import AcpTurn

HURRY_S = 1.0
STOP_S = 1.5


class AcpBackend(ProcessBackend["AcpTurn"]):
    """Runs turns through one such agent."""

    def __init__(self, agent: AcpAgent, context: AgentContext, limits: TimeLimits | None = None) -> None:
        limits = limits or TimeLimits(agent.timeout_s, stop_s=STOP_S)
        super().__init__(context, limits, agent.service, agent.hosts)
        self.name = agent.name
        self._agent = agent

    async def _open(
        self,
        request: TurnRequest,
        record: SessionLog,
        access: NetworkAccess,
        service: ModelService | None,
        *,
        fresh: bool,
    ) -> AcpTurn:
        """A process for the turn. Raises CodeButlerError if there can be none."""
        del fresh  # these agents say by themselves whether a session is lost
        if request.session_id:
            kept = await asyncio.to_thread(self._agent.kept_session, request.session_id, request.workdir)
            request = replace(request, session_id=kept)
        launch = await self._agent.launch(self._context.sandbox, request, access, service)
        # Takes most of a second, once.
        await asyncio.to_thread(import_module, "acp")
        from codebutler_worker.agents.acp.turn import AcpTurn

        process = await AgentProcess(launch, record=record.write).start()
        prompt = "\n\n".join(filter(None, (request.system_prompt, self._context.network_policy.notice())))
        request = replace(request, system_prompt=prompt)
        return AcpTurn(request, process, access, self._clock, self._limits, self._agent)

    async def _finished(self, turn: AcpTurn) -> Finished:
        """The agent's own verdict, unless its record or a resource limit contradicts it."""
        verdict, total = turn.verdict, turn.translator.cost_usd
        assert verdict is not None
        record = await self._record(turn)
        if record is not None and record.ended < turn.prompts:
            # The agent writes the rest of its record as it ends. People who stop a turn do not wait long for that.
            ending = self._end(turn.request.turn_id, turn.end(at_once=not verdict.ok))
            await asyncio.wait({ending}, timeout=None if verdict.ok else HURRY_S)
            record = await self._record(turn)
        if verdict.reason == "done":
            verdict = self._doubted(turn, record)
        if verdict.reason == "failed" and turn.process.limit_hit:
            verdict = Verdict("failed", turn.process.limit_hit)
        text = turn.translator.answer.text if verdict.ok else verdict.text
        return Finished(verdict.ok, text, verdict.reason, self._usage(turn, record), total)

    async def _record(self, turn: AcpTurn) -> TurnRecord | None:
        session_id, request = turn.link.session_id, turn.request
        if not session_id:
            return None
        since = turn.record_from if session_id == request.session_id else 0
        return await asyncio.to_thread(self._agent.record_since, session_id, request.workdir, since)

    def _doubted(self, turn: AcpTurn, record: TurnRecord | None) -> Verdict:
        """An end without an answer, or one that the agent's own record contradicts, is not a success."""
        if record is not None and record.failure is not None:
            return record.failure
        if turn.translator.worked:
            return Verdict("done", "")
        text = f"{turn.title} ended without an answer: its model service may have failed; see `!logs`."
        return Verdict("failed", text)

    def _usage(self, turn: AcpTurn, record: TurnRecord | None) -> Usage:
        usage, total = turn.usage, turn.translator.cost_usd
        if record is not None and usage == Usage():
            usage = Usage(record.input_tokens, record.output_tokens, record.cost_usd, record.turns)
        if total is not None:
            usage = replace(usage, cost_usd=max(0.0, total - turn.request.cost_before_usd))
        return usage


# Created from a repository's settings.


def acp_backend(name: str, settings: RepoSettings, sandbox: Sandbox, home: Path, clock: Clock) -> AcpBackend:
    """The agent called ``name``: one of ``commands``, or Kimi Code. Raises SandboxUnavailableError."""
    config = settings.config
    rule = rule_of(config, name)
    agent = (
        Kimi(kimi_of(config), home, settings.agent_env, config.native.prices)
        if rule is None
        else AcpAgent(rule, home, settings.agent_env, config.session.timeout_minutes)
    )
    return AcpBackend(agent, AgentContext.of(settings, sandbox, clock))


def rule_of(config: Config, name: str) -> CommandRule | None:
    """The configured agent of that name; None for Kimi Code itself, for which there is a built-in rule."""
    found = next((rule for rule in config.commands if rule.prefix == name and rule.mode == "acp"), None)
    return None if found is not None and found.prefix == Kimi.name and not found.args else found


def kimi_of(config: Config) -> KimiSection:
    """Kimi Code's settings, unless a rule replaces the built-in one with another program."""
    rules = (rule for rule in config.commands if rule.prefix == Kimi.name and rule.mode == "acp")
    rule = next(rules, None)
    return config.kimi if rule is None else replace(config.kimi, binary=rule.binary)


# Whether the agents that speak the protocol could work now. Starts no turn.

LOGIN = "not logged in: run `kimi login` on this machine, or `codebutler config set kimi.apiKey` for a key"


async def survey_kimi(settings: RepoSettings, home: Path) -> Survey:
    """Kimi Code: its program, its version, its key or login."""
    section, repo = kimi_of(settings.config), Path(settings.path)
    kimi = Kimi(section, home, settings.agent_env)

    async def probed() -> tuple[str, str]:
        said = await ask_version(kimi.find(repo), kimi.environment(), repo)
        return dotted(version_in(said)), judge(said)

    has_login = bool(section.api_key) or await asyncio.to_thread(_has_login, home)
    return await survey_of(kimi.name, probed(), "" if has_login else LOGIN)


def _has_login(home: Path) -> bool:
    """A login, or settings that may name a service; whether it is still valid shows at the next turn."""
    code = home / ".kimi-code"
    return (code / "config.toml").is_file() or any((code / "credentials").glob("*"))
