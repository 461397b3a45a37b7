"""A layer of configuration: parsed, checked (UTF-8, JSON, known keys, types, ranges, kinds of token), and merged with
others, remembering where each value came from. Pure.

An error is one line: the key and what was expected. It never shows a value, which may be a secret.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec
import msgspec.inspect as shapes
from msgspec import Struct

from codebutler.config.chats import ALLOWED, AUTHOR, ROOT, SECTIONS
from codebutler.config.programs import pattern_fault
from codebutler.config.schema import HOST, ON_LIMIT, AuthorizationSection, CommandRule, Config
from codebutler.config.section import OURS, SERVER_NAME
from codebutler.domain.clock import zone_of
from codebutler.domain.errors import ConfigError, LegacyConfigError

T = TypeVar("T")
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
_TOKENS = {f"{section.key}.{each.key}": each for section in SECTIONS for each in section.tokens}
_TOKEN_KINDS = {start: kind for section in SECTIONS for start, kind in section.token_kinds.items()}
_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"missing required field `(.*)`", re.DOTALL)
_STEP = re.compile(r"[^.\[\]]+|\[\d*(?:\.\.\.)?\]")
_PATTERNS = {
    r"^https?://": "a URL that begins with http:// or https://",
    r"^(?!/|[.]?/*$|.*[.][.]).+\Z": "a path below the home directory such as .gemini",
    HOST: "a host such as example.org, *.example.org or example.org:8443",
    r"^([a-z]{2})?\Z": "two letters such as en",
    ON_LIMIT: "wait, ask, or agent and its name, such as agent kimi",
    ROOT: "a directory such as ~/projects",
    AUTHOR: "a name and an address such as Ana Lopez <ana@example.org>",
    ALLOWED: "the ID of a person, or *",
    r"^[a-z0-9][a-z0-9-]*\Z": "the name of a skill",
    SERVER_NAME: f"a short name of lower-case letters, digits and dashes, other than {OURS}",
    r"^[a-z][a-z0-9_-]*\Z": "a lower-case word",
    **{pattern: words for section in SECTIONS for pattern, words in section.patterns.items()},
}
_TYPES = re.compile(
    r"Expected `(?P<expected>[a-z| ]+)`(?P<measure> of length)?(?: (?P<sign>[<>]=?) (?P<limit>\S+))?"
    r"(?:, got `(?P<got>\w+)`)?\Z"
)
_WORDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "an object", "null": "null",
}  # fmt: skip
_GOT = {"float": "a fraction"}
_SIGNS = {"<=": "of at most", "<": "below", ">=": "of at least", ">": "above"}
_PARTS = {"str": "characters", "array": "entries", "object": "keys"}
_MAX_KEY_CHARS = 40
VALID_TEXT = "expected text without NUL and without invalid characters"


def parse_layer(data: bytes, source: str) -> JsonObject:
    """The checked content of one config file; ``source`` names the file in errors.

    Raises LegacyConfigError for a file of the WhatsApp era, ConfigError for anything else that is wrong.
    """
    layer = parse_object(data, source)
    if "whatsapp" in layer:
        raise LegacyConfigError(
            f"{source} is from the WhatsApp era: run `codebutler migrate` (it keeps a backup)"
        )
    check_layer(layer, source)
    return layer


def parse_object(data: bytes, source: str) -> JsonObject:
    """A JSON object in UTF-8. Raises ConfigError with the line and column of the fault."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{source}: line {line}: not valid UTF-8: save the file as UTF-8") from error
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        reason = error.msg.lower()
        raise ConfigError(
            f"{source}: line {error.lineno} column {error.colno}: malformed JSON: {reason}"
        ) from None  # the decoder's error carries the whole document
    except RecursionError:
        raise ConfigError(f"{source}: malformed JSON: nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{source}: malformed JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f'{source}: expected a JSON object such as {{"agent": {{…}}}}')
    return value


def parse_as(data: bytes, source: str, kind: type[T]) -> T:
    """A JSON object as ``kind``. Raises ConfigError with the place of the fault, or its key and what that expects."""
    try:
        return msgspec.convert(parse_object(data, source), kind)
    except msgspec.ValidationError as error:
        key, what = explain(error)
        raise ConfigError(f"{source}: {key}: {what}") from None
    except UnicodeEncodeError:
        raise ConfigError(f"{source}: {VALID_TEXT}") from None


def check_layer(layer: JsonObject, source: str) -> Config:
    """Check the layer by itself, with defaults for missing keys. Raises ConfigError with key path and
    expectation."""
    try:
        config = msgspec.convert(layer, Config)
    except msgspec.ValidationError as error:
        key, what = explain(error)
        raise ConfigError(f"{source}: {key}: {what}" if key else f"{source}: {what}") from None
    except UnicodeEncodeError:  # a lone surrogate, which the library cannot put into its error
        raise ConfigError(f"{source}: {VALID_TEXT}") from None
    for key, what in (*_text_faults(layer), *_semantic_faults(config)):
        raise ConfigError(f"{source}: {key}: {what}")
    return config


def tokens_of(config: Config) -> dict[str, str]:
    """The chats' tokens by key, "" for one that is not set."""
    return {
        f"{section.key}.{each.key}": getattr(section, each.attribute)
        for section in config.chats
        for each in section.tokens
    }


def token_fault(key: str, token: str) -> str:
    """Why this is not a token for the key, "" if it is one."""
    spec = _TOKENS[key]
    if spec.pattern.fullmatch(token):
        return ""
    kind = _token_kind(token)
    return f"expected {spec.expected}, this is {kind}" if kind else f"expected {spec.expected}"


def _text_faults(layer: JsonObject) -> Iterable[tuple[str, str]]:
    for path, value in leaves(layer):
        for text in (*path, *_strings(value)):
            if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
                yield ".".join(map(printable_key, path)), VALID_TEXT


def _strings(value: object) -> Iterator[str]:
    """Every string in a leaf's value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)


def _semantic_faults(config: Config) -> Iterable[tuple[str, str]]:
    for key, token in tokens_of(config).items():
        if token and (fault := token_fault(key, token)):
            yield key, fault
    defaults = AuthorizationSection().blocklist
    for name in ("blocklist", "allowlist"):
        for index, pattern in enumerate(getattr(config.authorization, name)):
            if pattern not in defaults and (fault := pattern_fault(pattern)):
                yield f"authorization.{name}[{index}]", fault
    try:
        zone_of(config.budget.timezone or "UTC")
    except ValueError as error:
        yield "budget.timezone", str(error)
    yield from ((f"claude.mcp.{name}", each.fault) for name, each in config.claude.mcp.items() if each.fault)
    prefixes = [rule.prefix for rule in config.commands]
    for index, prefix in enumerate(prefixes):
        if prefix in prefixes[:index]:
            yield f"commands[{index}].prefix", f"{prefix} is defined twice"


def _token_kind(token: str) -> str:
    if re.search(r"\s", token):
        return "one with spaces in it"
    for start, kind in _TOKEN_KINDS.items():
        if token.startswith(start):
            return kind if token != start else "only its beginning"
    return ""


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    result: JsonObject = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {printable_key(key)} appears twice in one object")
        result[key] = value
    return result


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """(dotted key, problem and expectation); the key is "" for the whole document."""
    match = _AT.match(str(error))
    what, where = (match["what"], match["where"] or "") if match else (str(error), "")
    if unknown := _UNKNOWN.search(what):
        return join(where, printable_key(unknown[1])), "unknown key" + _suggestion(where, unknown[1])
    if missing := _MISSING.search(what):
        return join(where, missing[1]), "is missing"
    return where, _expectation(where, what)


def allowed_values(where: str) -> tuple[str, ...]:
    """The allowed values of the key ``where``; empty if it is not an enumeration."""
    shape = _type_at(where)
    return tuple(str(value) for value in shape.values) if isinstance(shape, shapes.LiteralType) else ()


def known_keys(where: str) -> tuple[str, ...]:
    """The keys of the section at ``where`` ("" = the document)."""
    shape = _type_at(where)
    return tuple(f.encode_name for f in shape.fields) if isinstance(shape, shapes.StructType) else ()


def join(where: str, key: str) -> str:
    """The path of a key below ``where``."""
    return f"{where}.{key}" if where else key


def printable_key(key: str) -> str:
    """A key as an error may show it: short, and printable on one line."""
    plain = "".join(c if c.isprintable() else "?" for c in key)
    return plain if len(plain) <= _MAX_KEY_CHARS else plain[:_MAX_KEY_CHARS] + "…"


def _expectation(where: str, what: str) -> str:
    if what.startswith("Invalid enum value"):
        return "expected one of " + ", ".join(allowed_values(where))
    for pattern, words in _PATTERNS.items():
        if repr(pattern) in what:  # so msgspec quotes it
            return f"expected {words}"
    if match := _TYPES.match(what):
        return _expected_type(where, **match.groupdict())
    return what[:1].lower() + what[1:].replace("`", "")


def _expected_type(
    where: str, expected: str, measure: str | None, sign: str, limit: str, got: str | None
) -> str:
    """What msgspec expected, in words; ``sign`` and ``limit`` bound the value, or its length (``measure``)."""
    if expected == "object" and (keys := known_keys(where)):
        return f"expected an object with keys such as {keys[0]}"
    words = " or ".join(_WORDS.get(each, each) for each in expected.split(" | ") if each != "null")
    if sign:
        bound = f"{_SIGNS[sign]} {limit.removesuffix('.0')}"
        return f"expected {words} {bound}" + (f" {_PARTS[expected]}" if measure else "")
    return f"expected {words}, got {_GOT.get(got) or _WORDS.get(got, got)}" if got else f"expected {words}"


def is_list(where: str) -> bool:
    """Whether the key ``where`` takes several values."""
    return isinstance(_type_at(where), shapes.VarTupleType)


def _suggestion(where: str, key: str) -> str:
    close = difflib.get_close_matches(key, known_keys(where), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _type_at(where: str) -> Any:
    shape: Any = shapes.type_info(Config)
    for step in _STEP.findall(where):
        if isinstance(shape, shapes.UnionType):
            shape = next((t for t in shape.types if not isinstance(t, shapes.NoneType)), None)
        if step.startswith("["):
            shape = getattr(shape, "item_type", None)
        else:
            fields = getattr(shape, "fields", ())
            shape = next((f.type for f in fields if f.encode_name == step), None)
    return shape


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
