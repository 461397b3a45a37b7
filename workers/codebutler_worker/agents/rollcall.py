"""Which agents there are, whether each could work now (its program, its version, its login), and how one continues in a
terminal. Starts no turn.

It imports every kind of agent, so import it only where it is needed: most workers never need it.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from codebutler.config.agent_sessions import CLAUDE, KIMI
from codebutler.config.schema import Config, OpenAISection, RepoSettings
from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.agents.acp.backend import rule_of, survey_kimi
from codebutler_worker.agents.claude.backend import survey_claude
from codebutler_worker.agents.headless import survey_headless, survey_program
from codebutler_worker.agents.native.model import PRESETS, target
from codebutler_worker.agents.survey import Survey
from codebutler_worker.sandbox.person import HOMES

MOVED_HOME = {CLAUDE: ("CLAUDE_CONFIG_DIR", ".claude"), KIMI: ("KIMI_CODE_HOME", ".kimi-code")}


async def survey(settings: RepoSettings, home: Path) -> tuple[Survey, ...]:
    """Every agent in the repository's configuration, working ones first."""
    config = settings.config
    found = [
        await survey_claude(settings, home),
        Survey("rehearsal", ready=True, note="works offline, for trying things out"),
        _image(config),
        _native(config),
        *await _protocol(settings, home),
        *survey_headless(settings, home),
    ]
    return tuple(sorted(found, key=lambda one: not one.ready))


async def _protocol(settings: RepoSettings, home: Path) -> list[Survey]:
    rules = [rule for rule in settings.config.commands if rule_of(settings.config, rule.prefix) is rule]
    found = [survey_program(rule, settings, home) for rule in rules]
    replaced = "kimi" in {
        rule.prefix for rule in settings.config.commands if rule.mode != "acp" or rule in rules
    }
    return found if replaced else [await survey_kimi(settings, home), *found]


def _image(config: Config) -> Survey:
    own_service = config.openai.base_url != OpenAISection().base_url
    ready = bool(config.openai.api_key) or own_service
    return Survey(
        "image",
        ready=ready,
        note="" if ready else "not set up: run `codebutler config set openai.apiKey` to generate images",
    )


def _native(config: Config) -> Survey:
    try:
        found = target(config)
    except AgentUnavailableError as error:
        return Survey("agent", ready=False, note=str(error))
    return Survey("agent", ready=True, note=f"the built-in agent, over {found.model}")


def resume_words(settings: RepoSettings, home: Path, agent: str) -> list[str]:
    """What continues a session of this agent in a terminal, before its ID: its program, and what that needs in its
    environment to find the session and its model. A key is named, not shown."""
    config, words = settings.config, []
    if home.parent == HOMES:
        name, directory = MOVED_HOME[agent]
        words.append(f"{name}={shlex.quote(str(home / directory))}")
    if agent == CLAUDE:
        return [*words, shlex.quote(config.claude.binary), "--resume"]
    if config.kimi.api_key:
        model = config.kimi.model or PRESETS[KIMI].model
        words += [
            f"KIMI_MODEL_NAME={shlex.quote(model)}",
            f"KIMI_MODEL_BASE_URL={shlex.quote(config.kimi.base_url)}",
            'KIMI_MODEL_API_KEY="$KIMI_API_KEY"',
        ]
    return [*words, shlex.quote(config.kimi.binary), "--session"]
