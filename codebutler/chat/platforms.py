"""The chat platforms: the one place that lists them. A platform's modules are imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codebutler.chat.platform import Platform


PLATFORMS: Mapping[str, str] = MappingProxyType(
    {
        "Slack": "codebutler.chat.slack.platform",
        "Telegram": "codebutler.chat.telegram.platform",
    }
)
"""Name to the module whose ``PLATFORM`` it is."""


def platform(name: str) -> Platform:
    """The platform of that name, as the configuration's sections have it."""
    found: Platform = importlib.import_module(PLATFORMS[name]).PLATFORM
    return found


def platforms() -> tuple[Platform, ...]:
    """All of them, in order."""
    return tuple(map(platform, PLATFORMS))
