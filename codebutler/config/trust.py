"""Which keys of a repository's own file are honoured while nobody has vouched for it. Pure.

The list names what is harmless, so that a key added later is guarded until somebody decides otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from codebutler.config.merge import Layer, Merged, at, leaves, put
from codebutler.config.stricter import stricter

HARMLESS = frozenset(
    {
        "slack.channelName",
        "telegram.chatName",
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
        "slack.botToken",
        "slack.appToken",
        "slack.apiBaseUrl",
        "telegram.botToken",
        "telegram.apiBaseUrl",
        "dashboard.enabled",
        "dashboard.host",
        "dashboard.port",
    }
)
"""One connection to each chat, and one place to listen at, for all repositories."""


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
    """(the layer without what only the home's file can say, those keys sorted)."""
    return _strip(layer, HOME_ONLY.__contains__)


def tightened(safe: Merged, claimed: Merged, layer: Layer) -> tuple[Merged, tuple[str, ...], tuple[str, ...]]:
    """(``safe``, which is without the guarded keys of an untrusted ``layer``, with what is stricter in ``claimed``,
    which is with them; those keys, sorted; the guarded keys that are ignored, sorted)."""
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
    return Merged(values, provenance), tuple(sorted(applied)), tuple(sorted(ignored))


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
