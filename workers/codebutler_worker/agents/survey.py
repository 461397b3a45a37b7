"""Which agents there are, and whether each could work now: its program, its version, its login. Starts no turn."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.schema import Config, RepoSettings
from codebutler.errors import AgentUnavailableError

LOGIN = "log in by running `claude` once on this machine, or set ANTHROPIC_API_KEY in `~/.codebutler/.env`"
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
CREDENTIALS = ".claude/.credentials.json"


@dataclass(frozen=True, slots=True)
class Survey:
    """One agent: ``prefix`` is what people write before the colon; ``ready``, or ``note`` says what to do.

    ``version`` is "" where there is none to tell.
    """

    prefix: str
    ready: bool
    note: str = ""
    version: str = ""


async def survey(settings: RepoSettings, home: Path) -> tuple[Survey, ...]:
    """Every agent of the repository's configuration, the ones that work first."""
    config = settings.config
    found = [
        await _claude(settings, home),
        Survey("rehearsal", ready=True, note="works offline, for trying things out"),
        _image(config),
        _native(config),
        *await _protocol(settings, home),
        *_headless(settings),
    ]
    return tuple(sorted(found, key=lambda one: not one.ready))


async def _claude(settings: RepoSettings, home: Path) -> Survey:
    # Imported here: most workers are never asked.
    from codebutler_worker.agents.claude.probe import ask_version, dotted, find_binary, judge_version

    env, repo = settings.agent_env, Path(settings.path)
    try:
        path = env.get("PATH") or os.environ.get("PATH", os.defpath)
        binary = find_binary(settings.config.claude.binary, path, repo)
        version = await ask_version(binary, dict(env), Path("/"))
        note = judge_version(version)
    except AgentUnavailableError as error:
        return Survey("claude", ready=False, note=str(error))
    shown = dotted(version) if version else ""
    if not await asyncio.to_thread(_logged_in, env, home):
        return Survey("claude", ready=False, note=LOGIN, version=shown)
    return Survey("claude", ready=True, note=note, version=shown)


async def _protocol(settings: RepoSettings, home: Path) -> list[Survey]:
    # Imported here: most workers are never asked.
    from codebutler_worker.agents.acp.made import rule_of
    from codebutler_worker.agents.acp.surveyed import survey_kimi, survey_other

    rules = [rule for rule in settings.config.commands if rule_of(settings.config, rule.prefix) is rule]
    found = [survey_other(rule, settings) for rule in rules]
    replaced = "kimi" in {
        rule.prefix for rule in settings.config.commands if rule.mode != "acp" or rule in rules
    }
    return found if replaced else [await survey_kimi(settings, home), *found]


def _headless(settings: RepoSettings) -> list[Survey]:
    # Imported here: most workers are never asked.
    from codebutler_worker.agents.headless.made import survey_headless

    return survey_headless(settings)


def _logged_in(env: Mapping[str, str], home: Path) -> bool:
    """Whether there is a key or a login; whether the service still takes it shows at the next turn.

    macOS keeps the login in its keychain, which is not ours to open.
    """
    kept = sys.platform == "darwin" or (home / CREDENTIALS).is_file()
    return kept or any(env.get(key) for key in KEYS)


def _image(config: Config) -> Survey:
    from codebutler.config.schema import OpenAISection

    own_service = config.openai.base_url != OpenAISection().base_url
    ready = bool(config.openai.api_key) or own_service
    return Survey("image", ready=ready, note="" if ready else "set `openai.apiKey` to draw images")


def _native(config: Config) -> Survey:
    # Imported here: most workers are never asked.
    from codebutler_worker.agents.native.presets import target

    try:
        found = target(config)
    except AgentUnavailableError as error:
        return Survey("agent", ready=False, note=str(error))
    return Survey("agent", ready=True, note=f"our own agent, over `{found.endpoint.model}`")
