"""Environment variables, and the ``.env`` file of the home, as a layer of configuration. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from codebutler.config.load import check_layer
from codebutler.config.merge import Layer, put
from codebutler.domain.errors import ConfigError

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


def _text(value: str) -> str:
    return value


def _words(value: str) -> list[str]:
    return [word for part in value.split(",") if (word := part.strip())]


def _whole_numbers(value: str) -> list[int]:
    return [int(word) for word in _words(value)]


def _whole(value: str) -> int:
    return int(value)


def _number(value: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _lower(value: str) -> str:
    return value.lower()


@dataclass(frozen=True)
class Variable:
    """One variable: the dotted key it overrides and how its text is read."""

    key: str
    read: Callable[[str], object] = _text
    expected: str = "text"


VARIABLES: Mapping[str, Variable] = {
    "SLACK_BOT_TOKEN": Variable("slack.botToken"),
    "SLACK_APP_TOKEN": Variable("slack.appToken"),
    "SLACK_API_URL": Variable("slack.apiBaseUrl"),
    "SLACK_LISTEN_CHANNELS": Variable("slack.listenChannels", _words),
    "ALLOWED_USER_IDS": Variable("slack.allowedUsers", _words),
    "TELEGRAM_BOT_TOKEN": Variable("telegram.botToken"),
    "TELEGRAM_API_URL": Variable("telegram.apiBaseUrl"),
    "TELEGRAM_ALLOWED_USER_IDS": Variable(
        "telegram.allowedUsers", _whole_numbers, "numbers, separated by commas"
    ),
    "CLI_CLAUDE": Variable("claude.binary"),
    "CLI_KIMI": Variable("kimi.binary"),
    "KIMI_API_KEY": Variable("kimi.apiKey"),
    "OPENAI_API_KEY": Variable("openai.apiKey"),
    "TAVILY_API_KEY": Variable("tavily.apiKey"),
    "SESSION_TIMEOUT_MINUTES": Variable("session.timeoutMinutes", _number, "a number of minutes"),
    "OUTPUT_FLUSH_INTERVAL_MS": Variable("output.flushIntervalMs", _whole, "a whole number of milliseconds"),
    "OUTPUT_MAX_CHARS_PER_MESSAGE": Variable("output.maxCharsPerMessage", _whole, "a whole number"),
    "ENVELOPE_PROMPT_FILE": Variable("envelope.promptFile"),
    "ENVELOPE_ACTIVATION_DELAY_MS": Variable(
        "envelope.activationDelayMs", _whole, "a whole number of milliseconds"
    ),
    "ENVELOPE_UNCLOSED_TIMEOUT_MS": Variable(
        "envelope.unclosedTimeoutMs", _whole, "a whole number of milliseconds"
    ),
    "LOG_LEVEL": Variable("logs.level", _lower),
    "LOG_SESSION_RETENTION_DAYS": Variable("logs.retentionDays", _whole, "a whole number of days"),
}


def env_layers(env: Mapping[str, str], source: str = "environment") -> list[Layer]:
    """One checked layer per variable that is set and not empty, so that provenance names the variable.

    Raises ConfigError with the variable, the key it stands for and what was expected; never its value.
    """
    layers = []
    for name, variable in VARIABLES.items():
        if text := env.get(name, "").strip():
            label = f"{source} {name}"
            try:
                value = variable.read(text)
            except ValueError:
                raise ConfigError(f"{label} ({variable.key}): expected {variable.expected}") from None
            values: dict[str, Any] = {}
            put(values, tuple(variable.key.split(".")), value)
            check_layer(values, label)
            layers.append(Layer(label, values))
    return layers


def parse_env_file(data: bytes, source: str) -> dict[str, str]:
    """``NAME=value`` lines; ``export``, quotes, ``#`` comments and blank lines are understood, no expansion.

    Raises ConfigError with the number of a line that is none of these.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not valid UTF-8: save the file as UTF-8") from error
    values = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(f"{source}: line {number}: expected NAME=value")
        values[match[1]] = _unquoted(match[2], f"{source}: line {number}")
    return values


def _unquoted(value: str, where: str) -> str:
    if value[:1] in ("'", '"'):
        body, quote, rest = value[1:].partition(value[0])
        if not quote or (rest.strip() and not rest.strip().startswith("#")):
            raise ConfigError(f"{where}: the quotes do not match")
        return body
    return "" if value.startswith("#") else re.split(r"\s+#", value, maxsplit=1)[0].strip()
