"""How Claude Code is started and spoken to. Pure: settings in, argv, environment and lines out."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from codebutler.config.schema import ClaudeSection, PermissionMode
from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.agents.claude.translate import INITIALIZE
from codebutler_worker.agents.survey import PASSED_ON as PASSED_ON_TO_ALL
from codebutler_worker.agents.survey import Surroundings
from codebutler_worker.egress.service import BEARER, ModelService, parse_headers
from codebutler_worker.egress.way import HERE
from codebutler_worker.programs.program import program_root
from codebutler_worker.sandbox.port import Network, SandboxPolicy

# How Claude Code reaches its model, and what it holds for that.
#
# A key of the API stays outside: the CLI gets a token that only our proxy takes (Claude Code 2.1.328 sends to
# ANTHROPIC_BASE_URL whatever key it has). A login (a subscription's) it keeps itself and renews; that stays inside.

API = "https://api.anthropic.com"
LOGIN_HOSTS = ("api.anthropic.com", "platform.claude.com")
"""What a login needs: the API, and where its token is renewed (Claude Code 2.1.197 and 2.1.328)."""
KEYS: Mapping[str, tuple[str, str]] = {
    "ANTHROPIC_API_KEY": ("x-api-key", ""),
    "ANTHROPIC_AUTH_TOKEN": ("authorization", BEARER),
}
BASE_URL = "ANTHROPIC_BASE_URL"
HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
CREDENTIALS = frozenset({*KEYS, BASE_URL, HEADERS})


def service_of(agent_env: Mapping[str, str], token: str) -> ModelService | None:
    """The service behind the proxy; None if the CLI speaks with Anthropic by a login of its own."""
    keys = [
        (header, f"{prefix}{agent_env[name]}")
        for name, (header, prefix) in KEYS.items()
        if agent_env.get(name)
    ]
    if not keys and not agent_env.get(BASE_URL):
        return None
    return ModelService(
        base_url=agent_env.get(BASE_URL) or API,
        token=token,
        keys=tuple(keys),
        extra=parse_headers(agent_env.get(HEADERS, "")),
    )


def model_environment(
    agent_env: Mapping[str, str], service: ModelService | None, port: int
) -> dict[str, str]:
    """What the CLI is told of its model, where the proxy is on ``port`` of its loopback; 0 = there is none."""
    if service is None or not port:
        return {name: agent_env[name] for name in sorted(CREDENTIALS) if agent_env.get(name)}
    env = {name: service.token for name in KEYS if agent_env.get(name)}
    env[BASE_URL] = service.inside(port)
    env["NO_PROXY"] = ",".join(filter(None, (agent_env.get("NO_PROXY"), HERE)))
    return env


MAX_RETRIES = 4
"""Retries of a failed API call; the CLI's own ten take 185 s, for a wrong key too (Claude Code 2.1.328)."""

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

# What an operator may pass on to the CLI, besides its keys; everything else stays behind, whatever the
# mapping holds.
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

NAME_CHARS = 200
"""The longest name of a directory's sessions that is not a hash (Claude Code 2.1.328)."""

# Tools that would start work of their own between turns, or talk to other sessions on the machine.
UNATTENDED = "CronCreate,CronDelete,CronList,ScheduleWakeup,RemoteTrigger,ListAgents,SendMessage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation(Surroundings):
    """The program, and what stays the same for every process of one repository."""

    binary: Path


def argv(settings: ClaudeSection, binary: Path, session_id: str, *, resume: bool) -> tuple[str, ...]:
    """The command line of one live process: a new session under an id of our choice, or an earlier one."""
    spoken = ("--input-format", "stream-json", "--output-format", "stream-json")
    words = [str(binary), "-p", *spoken, "--verbose", "--include-partial-messages"]
    if settings.max_turns:
        words += ["--max-turns", str(settings.max_turns)]
    words += ["--permission-mode", MODES[settings.permission_mode], "--disallowedTools", UNATTENDED]
    if settings.permission_mode != "bypassPermissions":
        words += ["--permission-prompt-tool", "stdio"]
    if settings.model:
        # In one word: what a name begins with must not make it an option.
        words.append(f"--model={settings.model}")
    if not settings.project_settings:
        words += ["--setting-sources", "user", "--strict-mcp-config"]
    words += settings.extra_args
    return (*words, "--resume" if resume else "--session-id", session_id)


def environment(around: Installation) -> dict[str, str]:
    """The environment of the CLI and of every tool it runs, but for what it reaches its model with."""
    # The task list, which people see while it works, is off for some models (Claude Code 2.1.328).
    own = {"CLAUDE_CODE_MAX_RETRIES": str(MAX_RETRIES), "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1"}
    return {**own, **QUIET, **around.env(passed_on=PASSED_ON)}


def policy(
    around: Installation, workdir: Path, session_id: str, network: Network, env: Mapping[str, str]
) -> SandboxPolicy:
    """What the CLI may see: its login, this directory's sessions and the session's task list; the user's own
    settings read-only. ``network`` and ``env`` are its way to its model.

    The settings are not writable, because the user's own `claude` runs the hooks they name outside any
    sandbox. ``~/.claude.json`` stays hidden: it holds every project's history and the keys of its servers.

    Raises AgentUnavailableError where the sessions of this directory cannot be told from those of others.
    """
    claude = around.home / ".claude"
    if sessions(claude, workdir) == claude / "projects":
        raise AgentUnavailableError(
            f"the path of {workdir.name} has more than {NAME_CHARS} characters, so Claude Code's sessions of "
            "other directories would show there: register it where the path is shorter"
        )
    readable = [claude / name for name in ("settings.json", "CLAUDE.md", "agents", "commands", "skills")]
    readable.append(program_root(around.binary, around.home))
    writable = (sessions(claude, workdir), tasks(claude, session_id), claude / ".credentials.json")
    return SandboxPolicy(
        workdir=workdir,
        home=around.home,
        home_paths=tuple(path for path in writable if path.exists()),
        readable=tuple(path for path in readable if path.exists()),
        env={**environment(around), **env},
        network=network,
    )


def sessions(claude: Path, workdir: Path) -> Path:
    """Where the CLI keeps the sessions begun in ``workdir``: the path with a dash for each UTF-16 unit that is no ASCII
    letter or digit, so two for an emoji.

    Very long names get a hash we do not know: then all projects (Claude Code 2.1.328).
    """
    path = re.sub(r"[^\0-\uffff]", "--", os.path.realpath(workdir))
    name = re.sub(r"[^a-zA-Z0-9]", "-", path)
    return claude / "projects" / name if len(name) <= NAME_CHARS else claude / "projects"


def tasks(claude: Path, session_id: str) -> Path:
    """Where the CLI keeps the session's task list."""
    return claude / "tasks" / session_id


def initialize_line(system_prompt: str) -> bytes:
    """The first line of a live process. The system prompt goes here: an argument is limited to 128 KiB and
    can be read by every user of the machine."""
    request: dict[str, Any] = {"subtype": "initialize", "hooks": None}
    if system_prompt:
        request["appendSystemPrompt"] = system_prompt
    return control_line(INITIALIZE, request)


def control_line(request_id: str, request: dict[str, Any]) -> bytes:
    """A control request of ours."""
    return encode({"type": "control_request", "request_id": request_id, "request": request})


def message_line(text: str, uuid: str) -> bytes:
    """A person's message. A leading slash would be a command of the CLI; after a space it is text."""
    content = f" {text}" if text.startswith("/") else text
    message = {"role": "user", "content": content}
    return encode({"type": "user", "message": message, "uuid": uuid, "parent_tool_use_id": None})


def allow_line(request_id: str, given: dict[str, Any]) -> bytes:
    """Let the call run with exactly this input; no rule is remembered anywhere."""
    return _reply_line(request_id, response={"behavior": "allow", "updatedInput": given})


def deny_line(request_id: str, message: str) -> bytes:
    """Refuse the call; the model reads ``message`` and goes on."""
    return _reply_line(request_id, response={"behavior": "deny", "message": message})


def unsupported_line(request_id: str) -> bytes:
    """Answer a request we do not know, so that the CLI does not wait."""
    return _reply_line(request_id, "error", error="not supported")


def _reply_line(request_id: str, subtype: str = "success", **body: Any) -> bytes:
    response = {"subtype": subtype, "request_id": request_id, **body}
    return encode({"type": "control_response", "response": response})


def encode(line: dict[str, Any]) -> bytes:
    """A message to it, on one line."""
    # U+2028 and U+2029 would be line ends to a JavaScript reader.
    text = msgspec.json.encode(line)
    return text.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
