"""What a stranger tries again and again is one line of the audit log and, an hour later, one with a count. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from codebutler.observe.acts import Act

COUNTED_S = 3600.0
# More than so many at once are counted for less than an hour.
MOST = 10_000


@dataclass(slots=True)
class _Count:
    since_s: float
    last: Act
    more: int = 0


class Repeats:
    """Told apart by user, place and what was tried (a prompt, a command, a button, an edit …)."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], _Count] = {}

    def is_first(self, act: Act, now_s: float) -> bool:
        """Whether it is a line of its own; else it is counted. Ask ``over`` before."""
        key = (act.user, act.channel, act.kind.partition(" ")[0])
        count = self._counts.get(key)
        if count is None:
            self._counts[key] = _Count(now_s, act)
            return True
        count.last, count.more = act, count.more + 1
        return False

    def over(self, now_s: float) -> list[Act]:
        """The lines with the counts of the hours that are over."""
        full = len(self._counts) >= MOST
        ended = {k: c for k, c in self._counts.items() if full or now_s - c.since_s >= COUNTED_S}
        for key in ended:
            del self._counts[key]
        return [_line(count) for count in ended.values() if count.more]


def _line(count: _Count) -> Act:
    return structs.replace(
        count.last, decision=f"{count.last.decision} ({count.more} more within the hour; this is the last)"
    )
