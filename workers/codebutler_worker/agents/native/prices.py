"""What a model's tokens cost, by the price list of the configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler.config.schema import Price
from codebutler_worker.agents.native.model import Tokens

PER = 1_000_000


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """The model's entry; None if nobody has written one: then tokens are shown instead of money."""
    return prices.get(model)


def cost_usd(tokens: Tokens, price: Price | None) -> float | None:
    """In USD; None without a price. Without one of its own a cached token costs what any other does."""
    if price is None:
        return None
    cached = min(tokens.cached_input, tokens.input)
    cached_price = price.input if price.cached_input is None else price.cached_input
    total = (tokens.input - cached) * price.input + cached * cached_price + tokens.output * price.output
    return total / PER
