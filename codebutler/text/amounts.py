"""What is used of a daily limit, in words. Pure."""

from __future__ import annotations

from typing import Literal

Unit = Literal["usd", "tokens", "turns", "minutes"]


def amount(unit: Unit, number: float) -> str:
    """``$1.20``, ``1.2M tokens``, ``1 turn``, ``1h05m``."""
    match unit:
        case "usd":
            return "<$0.01" if 0 < number < 0.005 else f"${number:.2f}"
        case "tokens":
            return f"{_thousands(int(number))} tokens"
        case "turns":
            return f"{int(number)} turn{'' if int(number) == 1 else 's'}"
    minutes = round(number)
    return (
        f"{minutes // 60}h{minutes % 60:02d}m"
        if minutes >= 60
        else f"{number:.1f}".removesuffix(".0") + " min"
    )


def used_of(unit: Unit, used: float, limit: float) -> str:
    """``$1.20 of $5.00``, ``3 of 10 turns``."""
    shown = amount(unit, used).partition(" ")[0] if unit in ("tokens", "turns") else amount(unit, used)
    return f"{shown} of {amount(unit, limit)}"


def _thousands(number: int) -> str:
    if number < 1000:
        return str(number)
    value, unit = (number / 1000, "k") if number < 999_950 else (number / 1_000_000, "M")
    return f"{value:.1f}{unit}"
