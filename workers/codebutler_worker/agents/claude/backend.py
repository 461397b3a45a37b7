"""ClaudeBackend: Claude Code behind the AgentBackend port."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import msgspec
from msgspec.structs import replace

from codebutler.config.agent_sessions import claude_sessions
from codebutler.config.paths import Home
from codebutler.config.programs import DEFAULT_MODEL
from codebutler.config.schema import ClaudeSection, RepoSettings
from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.lookup import CLAUDE_CODE, look_up, path_of
from codebutler.platform.system import OperatingSystem, this_system
from codebutler_worker.agents.backend import Finished, TurnRequest, Verdict
from codebutler_worker.agents.claude import command
from codebutler_worker.agents.claude.command import servers
from codebutler_worker.agents.claude.commands import expansion, listed
from codebutler_worker.agents.claude.schema import Meter
from codebutler_worker.agents.claude.translate import ClaudeTranslator
from codebutler_worker.agents.claude.turn import ClaudeTurn
from codebutler_worker.agents.process import ProcessBackend, TimeLimits
from codebutler_worker.agents.running import AgentContext, repository_says
from codebutler_worker.agents.session_logs import SessionLog
from codebutler_worker.agents.shared_sessions import kept_here
from codebutler_worker.agents.survey import CLAUDE, Survey, Version, dotted, survey_of, version_in
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.egress.service import ModelService
from codebutler_worker.sandbox.destinations import make_directories
from codebutler_worker.sandbox.person import as_owner
from codebutler_worker.sandbox.process import AgentProcess

log = logging.getLogger(__name__)

INSTRUCTIONS = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
"""``--setting-sources user`` keeps a hostile checkout's settings from running, and ignores these files as well (Claude
Code 2.1.328). Their text still belongs to the agent, so it goes into the system prompt."""


class ClaudeBackend(ProcessBackend[ClaudeTurn]):
    """Runs turns through Claude Code.

    ``agent_env`` may hold the CLI's credentials and proxies (command.PASSED_ON) and the PATH of the CLI and its tools;
    else the worker's own PATH is used.
    """

    name = "claude"

    def __init__(
        self,
        settings: ClaudeSection,
        context: AgentContext,
        home: Path,
        agent_env: Mapping[str, str],
        limits: TimeLimits | None = None,
    ) -> None:
        limits = limits or TimeLimits(settings.timeout * 60)
        super().__init__(context, limits, command.service_of(agent_env), command.LOGIN_HOSTS)
        if settings.model == DEFAULT_MODEL:
            settings = replace(settings, model=usual_model(agent_env, home))
        self._settings = settings
        self._home = home
        self._agent_env = agent_env
        self._around: command.Installation | None = None
        self._probing = asyncio.Lock()

    async def _open(
        self,
        request: TurnRequest,
        record: SessionLog,
        access: NetworkAccess,
        service: ModelService | None,
        *,
        fresh: bool,
    ) -> ClaudeTurn:
        """A process for the turn. Raises CodeButlerError if none can be started."""
        around = self._around or await self._install(request.workdir)
        if request.session_id and not is_session_id(request.session_id):
            log.warning("the session of %s has no valid id: starting a new one", request.conversation)
            request, fresh = replace(request, session_id=None, cost_before_usd=0.0), True
        elif request.session_id:
            known = (self._home, request.workdir, self.name, request.session_id)
            request = replace(request, session_id=await asyncio.to_thread(kept_here, *known))
        claude = self._home / ".claude"
        sessions = claude_sessions(claude, request.workdir)
        # Always the same for a thread, unless that one was used before.
        named = "" if fresh or not request.session_name else str(uuid5(NAMESPACE_URL, request.session_name))
        is_free = bool(named) and not (sessions / f"{named}.jsonl").exists()
        session_id = request.session_id or (named if is_free else str(uuid4()))
        self._owned[request.turn_id].add(session_id)
        instructions = ""
        if not self._settings.project_settings:
            instructions = await asyncio.to_thread(repository_says, request.workdir, INSTRUCTIONS)
        parts = (request.system_prompt, self._context.network_policy.notice(), instructions)
        for directory in (sessions, claude / "tasks" / session_id):
            make_directories(self._home, directory)
        mcp, programs = await asyncio.to_thread(servers, self._settings.mcp, around, request.workdir)
        resume = request.session_id is not None
        words = command.argv(self._settings, around.binary, session_id, resume=resume, servers=mcp)
        policy = command.policy(around, request.workdir, session_id, access, service, programs)
        launch = self._context.sandbox.wrap(words, replace(policy, conversation=request.conversation))
        process = await AgentProcess(launch, record=record.write).start()
        translator = ClaudeTranslator(
            request.workdir, Meter(request.cost_before_usd), session_id=session_id, fresh=fresh
        )
        request = replace(request, system_prompt="\n\n".join(filter(None, parts)))
        lines = process.lines()
        opened = ClaudeTurn(request, process, access, self._clock, self._limits, lines, translator)
        if request.prompt.startswith("/") and not self._settings.project_settings:
            opened.expanded = await asyncio.to_thread(expansion, request.workdir, request.prompt)
        return opened

    async def _finished(self, turn: ClaudeTurn) -> Finished:
        """A resumed session that failed before it did anything is lost. The cost is the difference of the session's
        running totals."""
        verdict = turn.verdict
        assert verdict is not None
        if verdict.reason in ("failed", "session_lost") and (hit := turn.process.limit_hit):
            verdict = Verdict("failed", hit)
        elif turn.request.session_id and not turn.translator.worked and poisoned(turn, verdict):
            verdict = Verdict("session_lost", verdict.text)
        elif verdict.reason == "session_lost":
            verdict = Verdict("failed", verdict.text)
        translator = turn.translator
        return Finished(
            verdict.reason == "done",
            verdict.text,
            verdict.reason,
            translator.meter.usage,
            translator.result.total_cost_usd if translator.result else None,
            resets_at_s=translator.resets_at_s if verdict.reason == "limit" else None,
        )

    async def _install(self, workdir: Path) -> command.Installation:
        """Found and probed once; raises AgentUnavailableError (and looks again next time)."""
        async with self._probing:
            if self._around is None:
                path = path_of(self._agent_env)
                binary = find_binary(self._settings.binary, path, workdir, self._home)
                around = command.Installation(
                    home=self._home, path=path, agent_env=self._agent_env, binary=binary
                )
                if note := judge_version(await ask_version(binary, around.fixed_env, workdir)):
                    log.warning(note)
                self._around = around
            return self._around


def is_session_id(text: str) -> bool:
    """Whether it is a UUID, which cannot be mistaken for an option."""
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def usual_model(agent_env: Mapping[str, str], home: Path) -> str:
    """The model that the CLI would begin a session with: its own "default" leaves out what the user has set."""
    try:
        known = msgspec.json.decode((home / ".claude" / "settings.json").read_bytes(), type=_UserSettings)
    except (OSError, msgspec.DecodeError, UnicodeError):
        known = _UserSettings()
    return agent_env.get("ANTHROPIC_MODEL") or known.model or DEFAULT_MODEL


class _UserSettings(msgspec.Struct, frozen=True):
    """The part of the user's settings of Claude Code that we read."""

    model: str = ""


def poisoned(turn: ClaudeTurn, verdict: Verdict) -> bool:
    """Whether only the session itself can explain this failure (the model never answered)."""
    if verdict.reason == "session_lost" or turn.ran_command:
        return verdict.reason == "session_lost"
    result = turn.translator.result
    if result is None:
        return verdict.reason == "failed"
    if result.api_error_status == 400 and verdict.reason == "failed":
        return True
    return (
        result.num_turns == 0 and not (result.result or "").strip() and verdict.reason in ("done", "failed")
    )


# Find a supported Claude Code. Done once per worker.


def judge_version(version: Version | None) -> str:
    """A note for the log, empty if all is well. Raises AgentUnavailableError below the floor."""
    if version is None:
        raise AgentUnavailableError(f"claude does not report its version: install it with `{CLAUDE.install}`")
    return CLAUDE.judge(version)


def find_binary(binary: str, path: str, repo: Path, home: Path) -> Path:
    """The program itself, links resolved. Raises AgentUnavailableError with what to do. ``home`` is the user's.

    Relative entries of ``path`` are ignored, and a program in ``repo`` is refused: we ask for its version outside any
    sandbox, and an agent may have written it.
    """
    found = look_up(binary, path)
    if found is None:
        raise CLAUDE_CODE.missing(binary, home)
    program = found.resolve()
    if any(place.is_relative_to(repo) for place in (program, found)):
        raise AgentUnavailableError(
            f"{found} is in the repository, where agents may write: install Claude Code elsewhere"
        )
    return program


async def ask_version(binary: Path, env: Mapping[str, str], repo: Path) -> Version | None:
    """The output of ``--version``, run as the owner of ``repo``; None if it is not a version.

    Raises AgentUnavailableError, and SandboxUnavailableError if root cannot run it as an ordinary user.
    """
    return version_in(await CLAUDE.ask((*as_owner(repo, binary), str(binary)), env))


# Whether Claude Code could work now. Starts no turn.

LOGIN = "not logged in: run `claude auth login` on this machine, or put ANTHROPIC_API_KEY in {env_file}"
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
CREDENTIALS = ".claude/.credentials.json"
KEYCHAIN = "Claude Code-credentials"
IN_KEYCHAIN = (
    "logged in, but the login is in the keychain, which agents in a sandbox cannot read: run `claude setup-token` and "
    "put what it prints into {env_file} as CLAUDE_CODE_OAUTH_TOKEN"
)


async def survey_claude(settings: RepoSettings, home: Path) -> Survey:
    """Its program, its version, its key or login."""
    env, repo = settings.agent_env, Path(settings.path)

    async def probed() -> tuple[str, str]:
        binary = find_binary(settings.config.claude.binary, path_of(env), repo, home)
        version = await ask_version(binary, env, repo)
        return dotted(version), judge_version(version)

    login = await asyncio.to_thread(login_wanted, settings, home, this_system())
    found = await survey_of("claude", probed(), login)
    return replace(found, commands=await asyncio.to_thread(listed, home, repo))


def login_wanted(settings: RepoSettings, home: Path, system: OperatingSystem) -> str:
    """How to log in; "" if there is a key or a login that works here. Whether the service still accepts it shows at the
    next turn.

    macOS keeps the login in its keychain (Claude Code 2.1.328), which no sandbox opens to an agent.
    """
    if any(settings.agent_env.get(key) for key in KEYS) or (home / CREDENTIALS).is_file():
        return ""
    env_file = Home.from_env(os.environ).env_file
    if not system.keychain_has(KEYCHAIN):
        return LOGIN.format(env_file=env_file)
    return "" if settings.config.sandbox.mode == "none" else IN_KEYCHAIN.format(env_file=env_file)
