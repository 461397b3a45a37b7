"""The configuration in force: defaults, the home's file, the repository's file, environment variables and ``.env``; and
the same with every secret masked."""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.channels import channel_in, channel_layer
from codebutler.config.chats import SECTIONS
from codebutler.config.load import (
    Layer,
    MergedLayers,
    check_layer,
    default_layer,
    leaves,
    merge,
    parse_layer,
    put,
    tokens_of,
)
from codebutler.config.paths import CONFIG_NAME, Home, RepoPaths
from codebutler.config.programs import NATIVE_PREFIX, agent_fault, successor_of
from codebutler.config.registry import RepoEntry
from codebutler.config.schema import Config, RepoSettings
from codebutler.config.trust import digest, strip_misplaced, strip_untrusted, tighten
from codebutler.domain.errors import ConfigError

REGISTRY = "repos.json"
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
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


class Resolved(Struct, frozen=True):
    """The merged configuration; ``values`` is the same as JSON, ``provenance`` maps dotted keys to sources.

    ``notes`` are warnings for people, one line each. ``trusted`` is false while a repository's file is not
    the trusted one.
    """

    config: Config
    values: dict[str, Any]
    provenance: Mapping[str, str]
    notes: tuple[str, ...] = ()
    trusted: bool = True


def resolve_global(home: Home, env: Mapping[str, str]) -> Resolved:
    """Without a repository. Raises ConfigError (LegacyConfigError for a WhatsApp-era file)."""
    merged = merge([default_layer(), *_home_layers(home), *_environment(home, env)])
    return _check_merged(merged, "the merged configuration")


def resolve_repo(home: Home, entry: RepoEntry, env: Mapping[str, str]) -> Resolved:
    """For one repository.

    Its channel is the registered one. While the digest of its file is not the registered one, its guarded
    keys count only if they are stricter, and a note says so, as for keys that belong in the home's file.
    Raises ConfigError if the repository is gone or a file cannot be used.
    """
    source = str(RepoPaths(Path(entry.path)).config)
    data = read_repo_config(entry)
    layer = parse_layer(data, source) if data is not None else {}
    trusted = data is None or digest(data) == entry.digest
    before, after = [default_layer(), *_home_layers(home)], _environment(home, env)
    if entry.channel_id:
        is_named = channel_in(layer) == entry.channel_id
        below = [*before[1:], Layer(source, layer)]
        after = [channel_layer(entry.channel_id, source if is_named else REGISTRY, below), *after]
    accepted, misplaced = strip_misplaced(layer)
    merged = merge([*before, Layer(source, accepted), *after])
    notes = _misplaced_note(source, misplaced, home)
    if not trusted:
        harmless, _ = strip_untrusted(layer)
        safe = merge([*before, Layer(source, harmless), *after])
        if agent_fault(check_layer(safe.values, source), safe.values["agent"]["default"]):
            # It may name an agent of commands that do not count.
            harmless.get("agent", {}).pop("default", None)
            safe = merge([*before, Layer(source, harmless), *after])
        merged, applied, ignored = tighten(safe, merged, Layer(source, layer))
        notes = _untrusted_note(entry, source, applied, ignored)
    return _check_merged(merged, f"the merged configuration of {entry.name}", notes, trusted=trusted)


def read_repo_config(entry: RepoEntry) -> bytes | None:
    """The bytes of the repository's own file, None if it has none; never through a link.

    Raises ConfigError if the repository is gone, or the file is a link, not a regular file, or too large.
    """
    if entry.host:
        return None
    repo = Path(entry.path)
    if not repo.is_dir():
        raise ConfigError(
            f"{repo} no longer exists: restore it and run `codebutler restart`, "
            f"or run `codebutler remove-repo {entry.name}`"
        )
    try:
        with RepoPaths(repo).open() as directory:
            return directory.read(CONFIG_NAME)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "permission denied" if error.errno == errno.EACCES else (error.strerror or "unknown error")
        raise ConfigError(f"cannot read {RepoPaths(repo).root}: {reason}") from error


def _home_layers(home: Home) -> list[Layer]:
    data = _read_home(home, home.config)
    return [] if data is None else [Layer(str(home.config), parse_layer(data, str(home.config)))]


def env_file_values(home: Home) -> Mapping[str, str]:
    """The variables in the home's ``.env``. Raises ConfigError if it cannot be used."""
    data = _read_home(home, home.env_file)
    return {} if data is None else parse_env_file(data, str(home.env_file))


def _environment(home: Home, env: Mapping[str, str]) -> list[Layer]:
    return [*env_layers(env_file_values(home), str(home.env_file)), *env_layers(env)]


def _read_home(home: Home, file: Path) -> bytes | None:
    if not home.root.is_dir():
        return None
    try:
        with home.open() as directory:
            return directory.read(file.name)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error


def _untrusted_note(
    entry: RepoEntry, source: str, applied: tuple[str, ...], ignored: tuple[str, ...]
) -> tuple[str, ...]:
    parts = [f"ignoring {', '.join(ignored)}"] if ignored else []
    parts += [f"applying {', '.join(applied)}, because that is stricter"] if applied else []
    if not parts:
        return ()
    return (
        f"{source} has changed since it was trusted: {'; '.join(parts)}; "
        f"if the change is yours, run `codebutler trust {entry.name}`",
    )


def _misplaced_note(source: str, misplaced: tuple[str, ...], home: Home) -> tuple[str, ...]:
    if not misplaced:
        return ()
    return (
        f"{source}: ignoring {', '.join(misplaced)}, which applies to all repositories: "
        f"set it in {home.config}",
    )


def _check_merged(
    merged: MergedLayers, source: str, notes: tuple[str, ...] = (), *, trusted: bool = True
) -> Resolved:
    config = check_layer(merged.values, source)
    if fault := agent_fault(config, config.agent.default):
        raise ConfigError(f"{source}: agent.default: {fault}")
    if (successor := successor_of(config)) and (fault := agent_fault(config, successor)):
        raise ConfigError(f"{source}: agent.onLimit: {fault}")
    if config.agent.default == NATIVE_PREFIX:
        config = replace(config, agent=replace(config.agent, default="native"))
    return Resolved(config, merged.values, merged.provenance, notes, trusted)


def _split_list(value: str) -> list[str]:
    return [word for part in value.split(",") if (word := part.strip())]


def _whole_numbers(value: str) -> list[int]:
    return [int(word) for word in _split_list(value)]


def _number(value: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


class Variable(Struct, frozen=True):
    """One variable: the dotted key it overrides and how its text is read."""

    key: str
    read: Callable[[str], object] = str
    expected: str = "text"


VARIABLES: Mapping[str, Variable] = {
    "SLACK_BOT_TOKEN": Variable("slack.botToken"),
    "SLACK_APP_TOKEN": Variable("slack.appToken"),
    "SLACK_API_URL": Variable("slack.apiBaseUrl"),
    "SLACK_LISTEN_CHANNELS": Variable("slack.listenChannels", _split_list),
    "ALLOWED_USER_IDS": Variable("slack.allowedUsers", _split_list),
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
    "OUTPUT_FLUSH_INTERVAL_MS": Variable("output.flushIntervalMs", int, "a whole number of milliseconds"),
    "OUTPUT_MAX_CHARS_PER_MESSAGE": Variable("output.maxCharsPerMessage", int, "a whole number"),
    "ENVELOPE_PROMPT_FILE": Variable("envelope.promptFile"),
    "ENVELOPE_ACTIVATION_DELAY_MS": Variable(
        "envelope.activationDelayMs", int, "a whole number of milliseconds"
    ),
    "ENVELOPE_UNCLOSED_TIMEOUT_MS": Variable(
        "envelope.unclosedTimeoutMs", int, "a whole number of milliseconds"
    ),
    "LOG_LEVEL": Variable("logs.level", str.lower),
    "LOG_SESSION_RETENTION_DAYS": Variable("logs.retentionDays", int, "a whole number of days"),
}


def env_layers(env: Mapping[str, str], source: str = "environment") -> list[Layer]:
    """One checked layer per variable that is set and not empty, so that provenance names the variable.

    Raises ConfigError with the variable, its key and the expectation; never its value.
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
    """``NAME=value`` lines, with ``export``, quotes, ``#`` comments and blank lines, without expansion.

    Raises ConfigError with the number of an invalid line.
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
        values[match[1]] = _unquote(match[2], f"{source}: line {number}")
    return values


def _unquote(value: str, where: str) -> str:
    if value[:1] in ("'", '"'):
        body, quote, rest = value[1:].partition(value[0])
        if not quote or (rest.strip() and not rest.strip().startswith("#")):
            raise ConfigError(f"{where}: the quotes do not match")
        return body
    return "" if value.startswith("#") else re.split(r"\s+#", value, maxsplit=1)[0].strip()


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
    agent_secrets = {settings.agent_env.get(name, "") for name in SECRET_AGENT_VARIABLES}
    return secrets_of(settings.config) | (agent_secrets - {""})


def is_secret(key: str) -> bool:
    """Whether the dotted key holds a secret."""
    return key.rpartition(".")[2] in _SECRET_NAMES


def mask_values(values: dict[str, Any]) -> dict[str, Any]:
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
