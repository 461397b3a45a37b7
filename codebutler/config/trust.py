"""What a repository's own file may set while it is not trusted: which keys count, and of the others the stricter value.
Pure.

The list names the harmless keys, so that a key added later is guarded until somebody decides otherwise. The result is
never looser than the trusted configuration, for each key that has an order here; for all others the trusted value
counts.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from operator import and_, or_
from types import MappingProxyType
from typing import Any

from codebutler.config.chats import PEOPLE, SECTIONS
from codebutler.config.load import JsonObject, Layer, MergedLayers, leaves, put, value_at

Path = tuple[str, ...]
Choose = Callable[[Any, Any], Any]
"""A value no looser than the trusted and the claimed one; the trusted one if they are equal."""

MODES = ("plan", "ask", "acceptEdits", "bypassPermissions")
LIMIT_DEFAULTS = MappingProxyType({"memoryMb": (512, 4096), "processes": (128, 512), "cpus": (1, 0)})
"""The default of a missing limit: the smallest of any sandbox, and the largest (0 = none)."""
NOBODY_RULE: JsonObject = {"channels": [], "users": [], "allowedPrefixes": []}
MATCHES_NOTHING = r"[^\s\S]"
MAX_RULES = 1000
MAX_PATTERNS = 50
PATTERN_CHARS = 200
_HOST_ENTRY = re.compile(r"(?P<wild>\*\.)?(?P<host>\[[^\]]*\]|[^:]*)(:(?P<port>\d+))?")
_WEB_PORTS = ("80", "443")
"""The ports of an entry without one."""
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
        "logs.level",
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
"""Keys that count only in the home's file: all repositories share the chats' connections, the HTTP port, the log, the
directory for new repositories and the total budget."""


def stricter(trusted: JsonObject, claimed: JsonObject) -> JsonObject:
    """``trusted``, a whole configuration as JSON, with the stricter values of ``claimed``, another one."""
    result = copy.deepcopy(trusted)
    for path, choose in _ORDERS.items():
        put(result, path, choose(value_at(trusted, path), value_at(claimed, path)))
    put(result, ("sandbox", "hosts"), _hosts(result, trusted, claimed))
    put(result, ("native", "allowedPrograms"), _programs(trusted["native"], claimed["native"]))
    return result


def _strictest(*strictest_first: str) -> Choose:
    return lambda ours, theirs: min(ours, theirs, key=strictest_first.index)


def _mode(ours: str, theirs: str) -> str:
    """One sandbox is as good as another; only none is worse."""
    return theirs if ours == "none" else ours


def _smaller(ours: float | None, theirs: float | None) -> float | None:
    """None = no limit."""
    return ours if theirs is None or (ours is not None and ours <= theirs) else theirs


def _smaller_nonzero(ours: float, theirs: float) -> float:
    """0 = no limit."""
    return ours if theirs == 0 or 0 < ours <= theirs else theirs


def _limit(name: str) -> Choose:
    smallest, largest = LIMIT_DEFAULTS[name]

    def choose(ours: float | None, theirs: float | None) -> float | None:
        if ours is not None and theirs is not None:
            return _smaller_nonzero(ours, theirs)
        limit = theirs if ours is None else ours
        if limit is None or (largest and limit and limit >= largest) or limit == 0:
            return None
        return min(limit, smallest)

    return choose


def _common(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    return [each for each in ours if each in theirs]


def _all_of(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    return [*ours, *(each for each in theirs if each not in ours)]


def _largest(ours: Mapping[str, int], theirs: Mapping[str, int]) -> dict[str, int]:
    return {each: max(ours.get(each, 1), theirs.get(each, 1)) for each in (*ours, *theirs)}


def _blocked(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    return _all_of(ours, [each for each in theirs if is_plain(each)][:MAX_PATTERNS])


def _allowed(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    if not theirs:
        return list(ours)
    plain = [each for each in theirs if is_plain(each)][:MAX_PATTERNS]
    return (_common(ours, theirs) if ours else plain) or [MATCHES_NOTHING]


def is_plain(pattern: str) -> bool:
    """Whether an untrusted regular expression is cheap to match: in RE2 the time grows with its length, which
    counted repetitions multiply."""
    return "{" not in pattern and len(pattern) <= PATTERN_CHARS


def _rules(ours: Sequence[JsonObject], theirs: Sequence[JsonObject]) -> list[JsonObject]:
    """Rules that allow only what both allow; no rules = everybody may do everything."""
    if not ours or not theirs or ours == theirs:
        return [*(ours or theirs)]
    if len(ours) * len(theirs) > MAX_RULES:
        return [NOBODY_RULE]
    intersections = [_rule(one, other) for one, other in product(ours, theirs)]
    rules = [
        rule
        for number, rule in enumerate(intersections)
        if rule["channels"] and rule["users"] and rule not in intersections[:number]
    ]
    return rules or [NOBODY_RULE]


def _rule(one: JsonObject, other: JsonObject) -> JsonObject:
    users = other["users"] if "*" in one["users"] else one["users"]
    if "*" not in one["users"] and "*" not in other["users"]:
        users = _common(one["users"], other["users"])
    return {
        "channels": _common(one["channels"], other["channels"]),
        "users": users,
        "allowedPrefixes": _common(one["allowedPrefixes"], other["allowedPrefixes"]),
    }


def _hosts(result: JsonObject, trusted: JsonObject, claimed: JsonObject) -> list[str]:
    """One list applies to agents and commands: it does not count in a configuration that uses it for neither."""
    sandbox = result["sandbox"]
    lists = [
        each["sandbox"]["hosts"]
        for each in (trusted, claimed)
        if (sandbox["network"] != "open" and each["sandbox"]["network"] != "open")
        or (sandbox["commandNetwork"] in ("hosts", "auto") and each["sandbox"]["commandNetwork"] != "open")
    ]
    if len(lists) == 2:
        return intersect_hosts(*lists)
    return list(lists[0] if lists else trusted["sandbox"]["hosts"])


def _programs(ours: JsonObject, theirs: JsonObject) -> list[str]:
    """The list limits a native agent's programs only if it is strict."""
    if ours["strict"] and theirs["strict"]:
        return _common(ours["allowedPrograms"], theirs["allowedPrograms"])
    return list((theirs if theirs["strict"] else ours)["allowedPrograms"])


_ORDERS: Mapping[Path, Choose] = MappingProxyType(
    {
        **{each.path(PEOPLE): _common for each in SECTIONS},
        ("agent", "queuePerUser"): _smaller_nonzero,
        **{(agent, "permissionMode"): _strictest(*MODES) for agent in ("claude", "kimi", "native")},
        ("claude", "projectSettings"): and_,
        ("native", "web"): and_,
        ("native", "strict"): or_,
        ("native", "maxUsd"): _smaller,
        ("native", "maxTokens"): _smaller,
        ("sandbox", "mode"): _mode,
        ("sandbox", "network"): _strictest("hosts", "auto", "open"),
        ("sandbox", "commandNetwork"): _strictest("none", "hosts", "auto", "open"),
        ("sandbox", "readable"): _common,
        **{("sandbox", name): _limit(name) for name in LIMIT_DEFAULTS},
        ("sandbox", "fileSizeGb"): _smaller_nonzero,
        ("authorization", "rules"): _rules,
        ("authorization", "mayLoosen"): _common,
        ("authorization", "blocklist"): _blocked,
        ("authorization", "allowlist"): _allowed,
        ("approvals", "quorum"): _largest,
        ("approvals", "requesterVotes"): and_,
        ("git", "protected"): _all_of,
        ("git", "localRemotes"): _common,
        ("memory", "review"): _strictest("off", "ask", "auto"),
        ("skills", "disabled"): _all_of,
        **{
            ("budget", whose, limit): _smaller
            for whose in ("repo", "user", "thread", "job")
            for limit in ("usdPerDay", "tokensPerDay", "turnsPerDay", "minutesPerDay")
        },
    }
)


def intersect_hosts(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """Entries for the hosts and ports that both lists name, each once."""
    if ours == theirs:
        return [*ours]
    entries = [found for one in ours for other in theirs if (found := _intersect_entries(one, other))]
    return list(dict.fromkeys(entries))


def _intersect_entries(one: str, other: str) -> str:
    """The entry for what both match; "" for nothing."""
    first, second = _HOST_ENTRY.fullmatch(one.lower()), _HOST_ENTRY.fullmatch(other.lower())
    if first is None or second is None:
        return ""
    name = _name(first, second)
    port = _port(first["port"], second["port"])
    return "" if name is None or port is None else f"{name}{port}"


def _name(one: re.Match[str], other: re.Match[str]) -> str | None:
    first, second = one["host"], other["host"]
    if one["wild"] and (f".{second}".endswith(f".{first}")) and (other["wild"] or first != second):
        return f"{other['wild'] or ''}{second}"
    if other["wild"] and (f".{first}".endswith(f".{second}")) and (one["wild"] or first != second):
        return f"{one['wild'] or ''}{first}"
    return first if first == second and not one["wild"] and not other["wild"] else None


def _port(one: str | None, other: str | None) -> str | None:
    first = (str(int(one)),) if one else _WEB_PORTS
    second = (str(int(other)),) if other else _WEB_PORTS
    common = [port for port in first if port in second]
    return None if not common else "" if len(common) == 2 else f":{common[0]}"


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


def tighten(
    safe: MergedLayers, claimed: MergedLayers, layer: Layer
) -> tuple[MergedLayers, tuple[str, ...], tuple[str, ...]]:
    """(``safe``, the configuration without the guarded keys of an untrusted ``layer``, plus the stricter values of
    ``claimed``, the configuration with them; the keys that were stricter, sorted; the guarded keys that are ignored,
    sorted)."""
    values = stricter(safe.values, claimed.values)
    provenance, applied, ignored = dict(safe.provenance), [], []
    for path, value in leaves(layer.values):
        key = ".".join(path)
        trusted, value_now = value_at(safe.values, path), value_at(values, path)
        if value_now != trusted:
            provenance[key] = layer.source
            applied.append(key)
        elif is_guarded(key) and value != trusted:
            ignored.append(key)
    return MergedLayers(values, provenance), tuple(sorted(applied)), tuple(sorted(ignored))


def _strip(
    layer: dict[str, Any], is_unwanted: Callable[[str], bool]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    remaining: dict[str, Any] = {}
    ignored = []
    for path, value in leaves(layer):
        key = ".".join(path)
        if is_unwanted(key):
            ignored.append(key)
        else:
            put(remaining, path, value)
    return remaining, tuple(sorted(ignored))
