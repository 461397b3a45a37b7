"""The walls that the battery is tried against."""

from __future__ import annotations

from tests.integration.sandbox.attacker import attacker, base

__all__ = ["attacker", "base"]
