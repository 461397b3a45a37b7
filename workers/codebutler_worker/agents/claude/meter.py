"""What a turn has used so far. Pure.

The tokens come with each message of the model (the streaming Messages API: the input at its start, the output at its
end), the cost from a control request of ours; a result replaces both by the final figures of what it ends.
"""

from __future__ import annotations

import re

from codebutler_worker.agents.backend import Usage
from codebutler_worker.agents.claude.schema import ResultLine, StreamPart, TokenUsage

# The cost is booked just after the message's last line: what is told at the first question may be the old sum.
ASKS = 2
# The sum is told rounded.
ROUNDING_USD = 0.01
_COST = re.compile(r"cost:\s*\$([0-9]+(?:\.[0-9]+)?)", re.IGNORECASE)


class Meter:
    """``cost_before_usd`` is the session's total before this turn."""

    def __init__(self, cost_before_usd: float) -> None:
        self._before_usd = cost_before_usd
        self._settled = Usage()
        self._cost_usd: float | None = None
        self._forget()
        self._asks = 0
        self._mute = False

    @property
    def usage(self) -> Usage:
        """The figures so far."""
        settled = self._settled
        return Usage(
            settled.input_tokens + self._input,
            settled.output_tokens + self._output,
            self._cost_usd,
            settled.turns + self._messages,
        )

    def streamed(self, part: StreamPart, *, inner: bool) -> bool:
        """Count a piece of a message; whether that ended one. ``inner``: a subagent's."""
        if part.type == "message_start":
            self._input += read(part.message.usage)
            self._messages += not inner
        elif part.type == "message_delta":
            self._output += part.usage.output_tokens
            self._asks = ASKS
            return True
        return False

    def settle(self, line: ResultLine) -> None:
        """Take the figures of a result."""
        before, used = self._settled, line.usage
        self._cost_usd = cost_difference(line.total_cost_usd, self._before_usd)
        self._settled = Usage(
            before.input_tokens + read(used),
            before.output_tokens + used.output_tokens,
            self._cost_usd,
            before.turns + line.num_turns,
        )
        self._forget()
        self._asks = 0

    def wants_price(self) -> bool:
        """Whether to ask for the cost now; call it about once a second."""
        asks = self._asks > 0 and not self._mute
        self._asks -= asks
        return asks

    def priced(self, text: str | None) -> bool:
        """Take the answer to get_session_cost, None for a refusal; whether it changes anything."""
        found = _COST.search(text or "")
        if found is None:
            self._mute = True
            return False
        total_usd, known_usd = float(found[1]), self._cost_usd
        if self._before_usd - ROUNDING_USD <= total_usd < self._before_usd:
            total_usd = self._before_usd
        self._cost_usd = cost_difference(total_usd, self._before_usd)
        return self._cost_usd != known_usd

    def _forget(self) -> None:
        self._input = self._output = self._messages = 0


def read(used: TokenUsage) -> int:
    """Every token that the model was given, from a cache or not."""
    return used.input_tokens + used.cache_creation_input_tokens + used.cache_read_input_tokens


def cost_difference(total_usd: float | None, before_usd: float) -> float | None:
    """What this turn cost. A total below the earlier one means that the session counts from zero again."""
    if total_usd is None:
        return None
    return total_usd - before_usd if total_usd >= before_usd else total_usd
