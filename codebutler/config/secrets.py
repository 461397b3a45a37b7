"""Which values of the configuration, and of what agents are given, are secrets. Pure."""

from __future__ import annotations

from codebutler.config.schema import Config, RepoSettings

SECRET_AGENT_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
    "CLAUDE_CODE_OAUTH_TOKEN",
)


def secrets_of(config: Config) -> set[str]:
    """The secret values of a configuration."""
    values = {
        config.slack.bot_token,
        config.slack.app_token,
        config.telegram.bot_token,
        config.kimi.api_key,
        config.native.api_key,
        config.openai.api_key,
        config.tavily.api_key,
    }
    return values - {""}


def secrets_in(settings: RepoSettings) -> set[str]:
    """Every secret value that a worker is told."""
    given = {settings.agent_env.get(name, "") for name in SECRET_AGENT_VARIABLES}
    return secrets_of(settings.config) | (given - {""})
