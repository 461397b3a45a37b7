"""Lists of hosts (``sandbox.hosts``): what two of them have in common. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ENTRY = re.compile(r"(?P<wild>\*\.)?(?P<host>\[[^\]]*\]|[^:]*)(:(?P<port>\d+))?")
_WEB = ("80", "443")
"""What an entry without a port stands for."""


def narrower(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """Entries for the hosts and ports that both lists name, each once."""
    if ours == theirs:
        return [*ours]
    met = [found for one in ours for other in theirs if (found := _both(one, other))]
    return list(dict.fromkeys(met))


def _both(one: str, other: str) -> str:
    """The entry for what both name; "" for nothing."""
    first, second = _ENTRY.fullmatch(one.lower()), _ENTRY.fullmatch(other.lower())
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
    first = (str(int(one)),) if one else _WEB
    second = (str(int(other)),) if other else _WEB
    common = [port for port in first if port in second]
    return None if not common else "" if len(common) == 2 else f":{common[0]}"
