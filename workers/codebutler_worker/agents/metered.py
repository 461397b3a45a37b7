"""What an agent has used, by its own word and by what passed the proxy. Pure."""

from __future__ import annotations

from dataclasses import replace

from codebutler_worker.agents.backend import Usage
from codebutler_worker.egress.gauge import Gauge

ERRANDS_TOKENS = 50_000
"""So many a program may use for errands of its own (titles, summaries), which it does not count."""
TOO_MUCH = 2
"""From so many times its own figure on, something else has asked its model."""


def metered(usage: Usage, gauge: Gauge | None) -> Usage:
    """``usage``, unless far more passed the proxy: then what passed, at the price of what was told."""
    told = usage.input_tokens + usage.output_tokens
    if gauge is None or gauge.total < told * TOO_MUCH + ERRANDS_TOKENS * (told < ERRANDS_TOKENS):
        return usage
    cost = usage.cost_usd
    if cost is not None and told:
        cost *= gauge.total / told
    return replace(usage, input_tokens=gauge.input, output_tokens=gauge.output, cost_usd=cost)
