"""Which keys of a repository's own file count while it is not trusted. Pure.

The list names the harmless ones, so that a key added later is guarded until somebody decides otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from codebutler.config.chats import SECTIONS
from codebutler.config.merge import Layer, MergedLayers, at, leaves, put
from codebutler.config.stricter import stricter

HARMLESS = frozenset(
    {
        *(".".join(each.path(each.place_name_field)) for each in SECTIONS),
        "agent.default",
        "agent.scope",
        "agent.debounceSeconds",
        "agent.silenceSeconds",
        "agent.busy",
        "agent.parallelTurns",
        "agent.isolation",
        "agent.mention",
        "claude.model",
        "claude.maxTurns",
        "claude.timeout",
        "kimi.model",
        "kimi.timeout",
        "native.model",
        "native.maxTurns",
        "native.timeout",
        "openai.language",
        "envelope.activationDelayMs",
        "envelope.unclosedTimeoutMs",
        "output.flushIntervalMs",
        "output.maxCharsPerMessage",
        "output.progressAfterSeconds",
        "output.verbosity",
        "session.timeoutMinutes",
        "logs.level",
        "worker.idleSleepMinutes",
        "catchUp.maxAgeHours",
    }
)

HOME_ONLY = frozenset(
    {
        *(f"{section.key}.{each.key}" for section in SECTIONS for each in section.tokens),
        *(f"{each.key}.apiBaseUrl" for each in SECTIONS),
        "dashboard.enabled",
        "dashboard.host",
        "dashboard.port",
        *(f"newRepos.{each}" for each in ("root", "allow", "timeoutMinutes", "maxMb", "author")),
        "metrics.allow",
        "metrics.token",
        "tracing.endpoint",
        *(
            f"budget.total.{unit}Per{period}"
            for unit in ("usd", "tokens", "turns", "minutes")
            for period in ("Day", "Month")
        ),
    }
)
"""Keys that count only in the home's file: all repositories share the chats' connections, the HTTP port, the directory
for new repositories and the total budget."""


def digest(data: bytes) -> str:
    """SHA-256 of the file as it is, in hex."""
    return hashlib.sha256(data).hexdigest()


def is_guarded(key: str) -> bool:
    """Whether the dotted key needs a trusted file."""
    return key not in HARMLESS


def strip_untrusted(layer: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(the layer without its guarded keys, those keys sorted)."""
    return _strip(layer, is_guarded)


def strip_misplaced(layer: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(the layer without keys that belong in the home's file, those keys sorted)."""
    return _strip(layer, HOME_ONLY.__contains__)


def tightened(
    safe: MergedLayers, claimed: MergedLayers, layer: Layer
) -> tuple[MergedLayers, tuple[str, ...], tuple[str, ...]]:
    """(``safe``, the configuration without the guarded keys of an untrusted ``layer``, plus the stricter values of
    ``claimed``, the configuration with them; the keys that were stricter, sorted; the guarded keys that are ignored,
    sorted)."""
    values = stricter(safe.values, claimed.values)
    provenance, applied, ignored = dict(safe.provenance), [], []
    for path, value in leaves(layer.values):
        key = ".".join(path)
        ours, now = at(safe.values, path), at(values, path)
        if now != ours:
            provenance[key] = layer.source
            applied.append(key)
        elif is_guarded(key) and value != ours:
            ignored.append(key)
    return MergedLayers(values, provenance), tuple(sorted(applied)), tuple(sorted(ignored))


def _strip(layer: dict[str, Any], unwanted: Callable[[str], bool]) -> tuple[dict[str, Any], tuple[str, ...]]:
    kept: dict[str, Any] = {}
    ignored = []
    for path, value in leaves(layer):
        key = ".".join(path)
        if unwanted(key):
            ignored.append(key)
        else:
            put(kept, path, value)
    return kept, tuple(sorted(ignored))
