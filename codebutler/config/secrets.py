"""Which values of the configuration are secrets, and the configuration with every secret masked. Pure."""

from __future__ import annotations

import re
from typing import Any

from codebutler.config.chats import SECTIONS
from codebutler.config.load import tokens_of
from codebutler.config.merge import leaves, put
from codebutler.config.schema import Config, RepoSettings

SECRET_AGENT_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
    "CLAUDE_CODE_OAUTH_TOKEN",
)
MASK = "********"
_SECRET_NAMES = frozenset({"apiKey", "token", *(each.key for section in SECTIONS for each in section.tokens)})
_LOOKS_SECRET = re.compile(
    r"\b[0-9]{6,12}:AA[A-Za-z0-9_-]{20,}"
    r"|\b(?:xox[a-z]|xapp|xoxe\.xox[a-z]|sk|tvly|ghp|gho|github_pat)[-_][A-Za-z0-9_-]{6,}|\bAKIA[0-9A-Z]{12,}"
)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_OPTION = r"--?[\w-]*(?:key|token|secret|password)[\w-]*"
_SECRET_OPTION = re.compile(_OPTION, re.IGNORECASE)
_OPTION_VALUE = re.compile(rf"({_OPTION}=).+", re.IGNORECASE)


def secrets_of(config: Config) -> set[str]:
    """The secret values of a configuration."""
    values = {
        *tokens_of(config).values(),
        config.kimi.api_key,
        config.native.api_key,
        config.openai.api_key,
        config.tavily.api_key,
        config.forge.token,
        config.metrics.token,
    }
    return values - {""}


def secrets_in(settings: RepoSettings) -> set[str]:
    """Every secret value in a worker's settings."""
    given = {settings.agent_env.get(name, "") for name in SECRET_AGENT_VARIABLES}
    return secrets_of(settings.config) | (given - {""})


def is_secret(key: str) -> bool:
    """Whether the dotted key holds a secret."""
    return key.rpartition(".")[2] in _SECRET_NAMES


def masked(values: dict[str, Any]) -> dict[str, Any]:
    """A copy with every secret replaced; an unset one stays empty, so that it is seen to be missing."""
    result: dict[str, Any] = {}
    for path, value in leaves(values):
        put(result, path, mask_value(".".join(path), value))
    return result


def mask_value(key: str, value: Any) -> Any:
    """The value in a form to show, also inside lists and objects."""
    if is_secret(key):
        return MASK if value else value
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, list | tuple):
        before = ["", *value]
        return [
            MASK if _is_secret_option(previous) else mask_value(key, item)
            for previous, item in zip(before, value, strict=False)
        ]
    if isinstance(value, dict):
        return {name: mask_value(f"{key}.{name}", item) for name, item in value.items()}
    return value


def mask_text(text: str) -> str:
    """Text without anything that looks like a token, a password in a URL, or the value of a secret's option."""
    return _OPTION_VALUE.sub(rf"\g<1>{MASK}", _USERINFO.sub(MASK, _LOOKS_SECRET.sub(MASK, text)))


def _is_secret_option(word: Any) -> bool:
    return isinstance(word, str) and _SECRET_OPTION.fullmatch(word) is not None
