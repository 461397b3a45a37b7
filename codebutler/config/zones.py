"""Time zones by their names."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


def zone_of(name: str) -> ZoneInfo:
    """The time zone of that name (IANA), the machine's own for "". Raises ValueError."""
    if not name:
        return _own_zone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone: write one like Europe/Berlin") from None


def _own_zone() -> ZoneInfo:
    from tzlocal import get_localzone

    return get_localzone()
