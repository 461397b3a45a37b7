"""A NativeBackend from a repository's settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from codebutler.config.paths import Home
from codebutler.config.schema import Config, RepoSettings
from codebutler.config.secrets import secrets_of
from codebutler.domain.clock import Clock
from codebutler.platform.lookup import path_of
from codebutler_worker.agents.native.backend import Habits, NativeBackend
from codebutler_worker.agents.native.loop import LoopLimits
from codebutler_worker.agents.native.presets import cost_usd, price_of, target
from codebutler_worker.agents.native.service import OpenAIModel
from codebutler_worker.agents.native.sessions import Sessions
from codebutler_worker.agents.native.turn import Thinker
from codebutler_worker.agents.record import SessionLogs
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.egress.outlet import for_tools
from codebutler_worker.internet.fetch import Internet
from codebutler_worker.internet.search import WebSearch as SearchService
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.skills.library import Library
from codebutler_worker.tools.add_subgoal import AddSubgoal
from codebutler_worker.tools.ask_user import AskUser
from codebutler_worker.tools.bash import Bash
from codebutler_worker.tools.code_search import CodeSearch
from codebutler_worker.tools.edit_file import EditFile
from codebutler_worker.tools.end_turn import EndTurn
from codebutler_worker.tools.list_files import ListFiles
from codebutler_worker.tools.port import Tool
from codebutler_worker.tools.programs import tool_policy
from codebutler_worker.tools.propose_plan import ProposePlan
from codebutler_worker.tools.read_files import ReadFiles
from codebutler_worker.tools.remember import Forget, Remember
from codebutler_worker.tools.run_terminal_command import RunTerminalCommand
from codebutler_worker.tools.send_file import SendFile
from codebutler_worker.tools.update_subgoal import UpdateSubgoal
from codebutler_worker.tools.use_skill import UseSkill
from codebutler_worker.tools.web_fetch import WebFetch
from codebutler_worker.tools.web_search import WebSearch
from codebutler_worker.tools.write_file import WriteFile


def native_backend(settings: RepoSettings, sandbox: Sandbox, home: Path, clock: Clock) -> NativeBackend:
    """The agent ``native``. Raises AgentUnavailableError if its model is not set up."""
    config, env = settings.config, settings.agent_env
    native, found = config.native, target(settings.config)
    model = OpenAIModel(found.endpoint, clock, env)
    price = price_of(native.prices, found.endpoint.model)
    thinker = Thinker(model=model, context=found.context, cost=lambda reply: cost_usd(reply.tokens, price))
    path = path_of(env)
    outlet = for_tools(config.sandbox, sandbox.name, env)
    context = AgentContext(sandbox, clock, outlet, SessionLogs.of(settings))
    policy = partial(_policy, home, path, dict(env))
    habits = Habits(
        limits=LoopLimits(
            most_turns=native.max_turns, most_usd=native.max_usd, most_tokens=native.max_tokens
        ),
        timeout_s=native.timeout * 60,
        mode=native.permission_mode,
        strict=native.strict,
    )
    sessions = Sessions(Path(settings.path), config.logs.retention_days)
    offered = (*tools(config, env), *_skills(Library(settings, Home.from_env(os.environ))))
    return NativeBackend(thinker, offered, context, policy, sessions, habits)


def tools(config: Config, env: Mapping[str, str] | None = None) -> tuple[Tool, ...]:
    """What the model is offered; ``env`` names the proxies for services."""
    native = config.native
    command: Tool = Bash(native.allowed_programs) if native.strict else RunTerminalCommand()
    found: tuple[Tool, ...] = (
        ListFiles(),
        CodeSearch(),
        ReadFiles(),
        EditFile(),
        WriteFile(),
        command,
        AddSubgoal(),
        UpdateSubgoal(),
        AskUser(),
        SendFile(),
        Remember(),
        Forget(),
        *_web(config, env or {}),
        EndTurn(),
    )
    return (*found, ProposePlan()) if native.permission_mode == "plan" else found


def _skills(library: Library) -> tuple[Tool, ...]:
    return (UseSkill(library),) if library.enabled() else ()


def _web(config: Config, env: Mapping[str, str]) -> tuple[Tool, ...]:
    """A tool that could only say no is not offered."""
    if not config.native.web:
        return ()
    secrets, service = secrets_of(config), SearchService(config.tavily, env)
    fetch = WebFetch(Internet(), secrets)
    return (fetch, WebSearch(service, secrets)) if service.available else (fetch,)


def _policy(home: Path, path: str, env: dict[str, str], workdir: Path, conversation: str) -> SandboxPolicy:
    return tool_policy(workdir, home, path, env, conversation)
