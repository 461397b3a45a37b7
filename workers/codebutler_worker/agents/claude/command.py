"""How to start Claude Code. Settings in; argv, environment and MCP servers out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from codebutler.config.agent_sessions import NAME_CHARS, claude_sessions
from codebutler.config.schema import ClaudeSection, PermissionMode
from codebutler.config.section import OURS, McpServer
from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.lookup import look_up
from codebutler_worker.agents.push_server import ALLOWED, server
from codebutler_worker.agents.survey import PASSED_ON as PASSED_ON_TO_ALL
from codebutler_worker.agents.survey import Surroundings, executable, program_root
from codebutler_worker.egress.access import HERE, NetworkAccess
from codebutler_worker.egress.service import BEARER, ModelService, parse_headers
from codebutler_worker.sandbox.port import SandboxPolicy

# How Claude Code reaches its model, and with which credentials.
#
# An API key stays outside: the CLI gets a token that only our proxy accepts (Claude Code 2.1.328 sends any key it has
# to ANTHROPIC_BASE_URL). The CLI keeps and renews the login of a subscription itself; that stays inside.

API = "https://api.anthropic.com"
LOGIN_HOSTS = ("api.anthropic.com", "platform.claude.com")
"""The hosts that a login needs: the API, and the token renewal (Claude Code 2.1.197 and 2.1.328)."""
KEYS: Mapping[str, tuple[str, str]] = {
    "ANTHROPIC_API_KEY": ("x-api-key", ""),
    "ANTHROPIC_AUTH_TOKEN": ("authorization", BEARER),
}
BASE_URL = "ANTHROPIC_BASE_URL"
HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
CREDENTIALS = frozenset({*KEYS, BASE_URL, HEADERS})


def service_of(agent_env: Mapping[str, str]) -> ModelService | None:
    """The service behind the proxy; None if the CLI talks to Anthropic with its own login."""
    keys = [
        (header, f"{prefix}{agent_env[name]}")
        for name, (header, prefix) in KEYS.items()
        if agent_env.get(name)
    ]
    if not keys and not agent_env.get(BASE_URL):
        return None
    return ModelService(
        base_url=agent_env.get(BASE_URL) or API,
        keys=tuple(keys),
        extra=parse_headers(agent_env.get(HEADERS, "")),
    )


MAX_RETRIES = 4
"""Retries of a failed API call; the CLI's default of ten takes 185 s, even for a wrong key (Claude Code 2.1.328)."""

MODES: Mapping[PermissionMode, str] = {
    "bypassPermissions": "bypassPermissions",
    "acceptEdits": "acceptEdits",
    "ask": "default",
    "plan": "plan",
}

QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}

# Variables that an operator may pass on to the CLI, besides its keys; all others are dropped.
PASSED_ON = PASSED_ON_TO_ALL | {
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_MODEL",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_CODE_MAX_RETRIES",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "IS_SANDBOX",
    "LANG",
}

# Tools that would start work of their own between turns, or talk to other sessions on the machine.
UNATTENDED = "CronCreate,CronDelete,CronList,ScheduleWakeup,RemoteTrigger,ListAgents,SendMessage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation(Surroundings):
    """The program, and what is the same for every process of one repository. ``root``: the directory that
    contains it. ``fixed_env``: the environment of the CLI and every tool it runs, except for how it reaches its
    model."""

    binary: Path
    root: Path = field(init=False)
    fixed_env: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        # Some models turn off the task list, which people see while it works (Claude Code 2.1.328).
        own = {"CLAUDE_CODE_MAX_RETRIES": str(MAX_RETRIES), "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1"}
        env = {**own, **QUIET, **self.env(passed_on=PASSED_ON)}
        object.__setattr__(self, "fixed_env", env)
        object.__setattr__(self, "root", program_root(self.binary, self.home))


def argv(
    settings: ClaudeSection, binary: Path, session_id: str, *, resume: bool, servers: str = ""
) -> tuple[str, ...]:
    """The command line of one live process: a new session under an id of our choice, or an earlier one. ``servers``:
    its MCP servers, as JSON."""
    spoken = ("--input-format", "stream-json", "--output-format", "stream-json")
    words = [str(binary), "-p", *spoken, "--verbose", "--include-partial-messages"]
    if settings.max_turns:
        words += ["--max-turns", str(settings.max_turns)]
    words += ["--permission-mode", MODES[settings.permission_mode], "--disallowedTools", UNATTENDED]
    if settings.permission_mode != "bypassPermissions":
        words += ["--permission-prompt-tool", "stdio"]
    if settings.model:
        # As one word, so that no name can become an option.
        words.append(f"--model={settings.model}")
    if servers:
        words += [f"--mcp-config={servers}", "--allowedTools", ALLOWED]
    if not settings.project_settings:
        words += ["--setting-sources", "user", "--strict-mcp-config"]
    words += settings.extra_args
    return (*words, "--resume" if resume else "--session-id", session_id)


def policy(
    around: Installation,
    workdir: Path,
    session_id: str,
    access: NetworkAccess,
    service: ModelService | None = None,
    programs: tuple[Path, ...] = (),
) -> SandboxPolicy:
    """What the CLI may see: its login, this directory's sessions and the session's task list; the user's own settings
    read-only. It reaches its model's ``service`` with a token if ``access`` has a proxy, else with the keys themselves.
    ``programs`` are what its MCP servers need to run.

    The settings are not writable, because the user's own `claude` runs the hooks they name outside any sandbox.
    ``~/.claude.json`` stays hidden: it holds every project's history and the keys of its servers.

    Raises AgentUnavailableError if this directory's sessions cannot be told apart from others.
    """
    claude = around.home / ".claude"
    if claude_sessions(claude, workdir) == claude / "projects":
        raise AgentUnavailableError(
            f"the path of {workdir.name} has more than {NAME_CHARS} characters, so Claude Code's sessions of "
            "other directories would show there: register it where the path is shorter"
        )
    readable = [claude / name for name in ("settings.json", "CLAUDE.md", "agents", "commands", "skills")]
    readable += [around.root, *programs]
    writable = (claude_sessions(claude, workdir), claude / "tasks" / session_id, claude / ".credentials.json")
    own = around.agent_env
    if service is None or not access.port:
        env = {name: own[name] for name in sorted(CREDENTIALS) if own.get(name)}
    else:
        env = {name: service.token for name in KEYS if own.get(name)}
        env[BASE_URL] = service.inside(access.port)
        env["NO_PROXY"] = ",".join(filter(None, (own.get("NO_PROXY"), HERE)))
    return SandboxPolicy(
        workdir=workdir,
        home=around.home,
        home_paths=tuple(path for path in writable if path.exists()),
        readable=tuple(path for path in readable if path.exists()),
        env={**around.fixed_env, **env, **access.env},
        network=access.network,
    )


def servers(
    allowed: Mapping[str, McpServer], around: Surroundings, workdir: Path
) -> tuple[str, tuple[Path, ...]]:
    """The MCP servers: as JSON, "" for none; and the paths that their programs need to read. Raises
    AgentUnavailableError if a program is missing."""
    known: dict[str, dict[str, object]] = {}
    readable: list[Path] = []
    if own := server():
        known[OURS] = {"type": "stdio", "command": own[0], "args": own[1:]}
    for name, each in allowed.items():
        if each.url:
            known[name] = {"type": "http", "url": each.url}
            continue
        argv, needed = _program(name, each.command, around, workdir)
        known[name] = {"type": "stdio", "command": argv[0], "args": (*argv[1:], *each.args)}
        readable += needed
    return (msgspec.json.encode({"mcpServers": known}).decode() if known else "", tuple(readable))


def _program(
    name: str, command: str, around: Surroundings, workdir: Path
) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """A name is looked up inside, as everything that the agent starts; a program in the repository needs nothing more,
    and its first line must not say what else is readable: an agent may have written it."""
    if "/" in command and not Path(command).is_absolute():
        return (command,), ()
    found = look_up(command, around.path, workdir)
    if found is None:
        raise AgentUnavailableError(
            f"the program {command} of claude.mcp.{name} was not found: install it, or give its absolute path there"
        )
    if "/" not in command or any(place.is_relative_to(workdir) for place in (found, found.resolve())):
        return (command,), ()
    ours = executable(found, around.path, workdir, around.home)
    return ours.argv, ours.readable
