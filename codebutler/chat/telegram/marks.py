"""Our marks on people's messages: Telegram shows one reaction of ours, of a few that it allows. Pure.

The last mark that was set and not taken away shows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType

REACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "hourglass_flowing_sand": "👀",
        "eyes": "👨‍💻",
        "raised_hand": "🤔",
        "white_check_mark": "👍",
        "x": "👎",
        "octagonal_sign": "🤷",
    }
)
"""Queued, working, waiting for a person, done, failed, stopped. ⏳ ✅ ❌ 🛑 ✋ are not allowed."""
REMEMBERED = 5000

Place = tuple[int, int]
"""A chat and a message there."""


class Marks:
    """What is set on each of the latest messages, as far as this life knows."""

    def __init__(self) -> None:
        self._set: OrderedDict[Place, tuple[str, ...]] = OrderedDict()

    def of(self, place: Place) -> tuple[str, ...]:
        """The marks that are set."""
        return self._set.get(place, ())

    def after(self, place: Place, name: str, *, remove: bool) -> tuple[str, ...] | None:
        """The marks that would be set; None if nothing would change. A mark of an earlier life is not known: to take
        it away, and with it what may have replaced it, is worse than to leave it."""
        before = self._set.get(place, ())
        if remove:
            return tuple(each for each in before if each != name) if name in before else None
        return (*(each for each in before if each != name), name) if before[-1:] != (name,) else None

    def shown(self, names: tuple[str, ...]) -> str:
        """The reaction that stands for them, "" for none."""
        known = [REACTIONS[name] for name in names if name in REACTIONS]
        return known[-1] if known else ""

    def keep(self, place: Place, names: tuple[str, ...]) -> None:
        """They are set now."""
        self._set[place] = names
        self._set.move_to_end(place)
        if len(self._set) > REMEMBERED:
            self._set.popitem(last=False)
