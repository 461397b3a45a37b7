"""Merges layers of configuration, remembering where each value came from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from codebutler.config.schema import CommandRule, Config

JsonObject = dict[str, Any]

DEFAULT = "default"
BUILTIN_COMMANDS = (
    CommandRule(prefix="claude", binary="claude", mode="headless", envelope=True, description="Claude Code"),
    CommandRule(prefix="kimi", binary="kimi", mode="acp", envelope=True, description="Kimi Code"),
    CommandRule(
        prefix="agent", binary="native", mode="headless", envelope=True, description="the built-in agent loop"
    ),
    CommandRule(prefix="run", binary="bash", args=("-c",), mode="one-shot", description="one shell command"),
)


class Layer(Struct, frozen=True):
    """One source: nested dicts with the keys of ``config.json``."""

    source: str
    values: JsonObject


class MergedLayers(Struct, frozen=True):
    """The result; ``provenance`` maps each dotted key (``commands.<prefix>`` for commands) to its source."""

    values: JsonObject
    provenance: dict[str, str]


def default_layer() -> Layer:
    """Every key with its built-in value, the built-in commands among them."""
    values: JsonObject = msgspec.json.decode(msgspec.json.encode(Config(commands=BUILTIN_COMMANDS)))
    return Layer(DEFAULT, values)


def merge(layers: Sequence[Layer]) -> MergedLayers:
    """Later layers win, field by field. A list replaces; in ``commands`` a same prefix replaces its rule."""
    values: JsonObject = {}
    provenance: dict[str, str] = {}
    commands: dict[str, JsonObject] = {}
    for layer in layers:
        for path, value in leaves(layer.values):
            if path == ("commands",):
                for rule in value:
                    commands[rule["prefix"]] = rule
                    provenance[f"commands.{rule['prefix']}"] = layer.source
            else:
                put(values, path, value)
                provenance[".".join(path)] = layer.source
    values["commands"] = [_with_binary(rule, values, provenance) for rule in commands.values()]
    return MergedLayers(values, provenance)


def leaves(values: JsonObject, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of everything that is not an object."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def value_at(values: JsonObject, path: tuple[str, ...]) -> Any:
    """The value at ``path``; {} if it is missing, since an empty object has no leaf."""
    for key in path:
        values = values.get(key, {})
    return values


def put(values: JsonObject, path: tuple[str, ...], value: object) -> None:
    """Set the leaf at ``path``, creating the objects on the way."""
    for key in path[:-1]:
        values = values.setdefault(key, {})
    values[path[-1]] = value


def _with_binary(rule: JsonObject, values: JsonObject, provenance: dict[str, str]) -> JsonObject:
    """A built-in rule starts the program of its agent's section."""
    prefix = rule["prefix"]
    binary = values.get(prefix, {}).get("binary") if prefix in ("claude", "kimi") else None
    return {**rule, "binary": binary} if binary and provenance[f"commands.{prefix}"] == DEFAULT else rule
