"""Which keys of a repository's own file are honoured while nobody has vouched for it. Pure.

The list names what is harmless, so that a key added later is guarded until somebody decides otherwise.
"""

from __future__ import annotations

import hashlib
from typing import Any

from codebutler.config.merge import leaves, put

HARMLESS = frozenset(
    {
        "slack.channelName",
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
        "output.verbosity",
        "session.timeoutMinutes",
        "logs.level",
        "worker.idleSleepMinutes",
        "catchUp.maxAgeHours",
    }
)


def digest(data: bytes) -> str:
    """SHA-256 of the file as it is, in hex."""
    return hashlib.sha256(data).hexdigest()


def is_guarded(key: str) -> bool:
    """Whether the dotted key needs a trusted file."""
    return key not in HARMLESS


def strip_untrusted(layer: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(the layer without its guarded keys, those keys sorted)."""
    kept: dict[str, Any] = {}
    ignored = []
    for path, value in leaves(layer):
        key = ".".join(path)
        if is_guarded(key):
            ignored.append(key)
        else:
            put(kept, path, value)
    return kept, tuple(sorted(ignored))
