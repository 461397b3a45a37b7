"""Migrates config files of the WhatsApp era. Pure: the caller reads, backs up and writes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from codebutler.config.load import join, known_keys, printable_key, put
from codebutler.config.schema import Config
from codebutler.domain.errors import ConfigError

_RENAMED = {
    "maxturns": "maxTurns",
    "permissionmode": "permissionMode",
    "apikey": "apiKey",
    "baseurl": "baseUrl",
}
_SNAKE = re.compile(r"[_-]+([A-Za-z0-9])")


class MigratedConfig(Struct, frozen=True):
    """Today's content, and one line for each dropped key or one that needs attention."""

    values: dict[str, Any]
    notes: tuple[str, ...]


def is_legacy(values: dict[str, Any]) -> bool:
    """Whether this is a file of the WhatsApp era."""
    return "whatsapp" in values


def migrate_config(values: dict[str, Any]) -> MigratedConfig:
    """The sections that still apply, in camelCase; the WhatsApp group and the bot prefix do not.

    Never raises for an unknown key or value: those are dropped with a note that shows no value.
    """
    migrated: dict[str, Any] = {}
    notes = []
    for section, content in values.items():
        if section == "whatsapp":
            notes.append("whatsapp: dropped; give the repository a channel with `codebutler add-repo`")
            continue
        if section not in known_keys("") or not isinstance(content, dict):
            notes.append(f"{printable_key(section)}: dropped, because it no longer has any effect")
            continue
        for key, value in content.items():
            name = _current_key(key)
            if name in known_keys(section) and _is_valid(section, name, value):
                put(migrated, (section, name), value)
            else:
                notes.append(
                    f"{printable_key(join(section, key))}: dropped, because it no longer has any effect"
                )
    return MigratedConfig(migrated, tuple(notes))


def _current_key(key: str) -> str:
    camel = _SNAKE.sub(lambda match: match[1].upper(), key)
    camel = camel[:1].lower() + camel[1:]
    return _RENAMED.get(camel.lower(), camel)


def _is_valid(section: str, key: str, value: object) -> bool:
    try:
        msgspec.convert({section: {key: value}}, Config)
    except (msgspec.ValidationError, ConfigError):
        return False
    return True
