"""Which reactions are wanted on which messages, which are there, and what to do about it next. Pure.

Slack allows 20 removals a minute over all channels, and 50 reactions set. A turn may show marks that are
taken away again (queued, working, waiting for a person), so at more than 10 turns a minute removals would pile up
without end. Hence: what is there for good goes first; a mark for a while is set only while few removals wait, else
put off until it is calm, and forgotten when it is no longer wanted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, Literal, TypeVar

Waiter = TypeVar("Waiter")
Step = Literal["add", "remove", "look"]
Spot = tuple[str, str]

BRIEF: Mapping[str, int] = MappingProxyType({"hourglass_flowing_sand": 4, "eyes": 8, "raised_hand": 12})
"""The marks for a while, and below how many waiting removals each may still be set."""
REMEMBERED = 10_000
# Of one channel; a worker that asks without end must not fill our memory.
PUT_OFF = 50


@dataclass(slots=True, eq=False)
class Mark(Generic[Waiter]):
    """One emoji of ours on one message. ``there`` is None while that is not known; ``waiters`` are told once it
    is as ``wanted``; ``put_off`` means that nobody waits for it, and it is set when there is room."""

    channel: str
    ts: str
    name: str
    wanted: bool = False
    there: bool | None = None
    busy: bool = False
    put_off: bool = False
    failures: int = 0
    waiters: list[Waiter] = field(default_factory=list)

    @property
    def spot(self) -> Spot:
        """The message it is on."""
        return self.channel, self.ts

    @property
    def brief(self) -> bool:
        """Whether it will be taken away again."""
        return self.name in BRIEF

    @property
    def right(self) -> bool:
        """Whether it is as it should be."""
        return not self.busy and self.there is self.wanted

    def told(self) -> list[Waiter]:
        """Those who waited, in the order they came; they wait no longer."""
        waiters, self.waiters = self.waiters, []
        return waiters


class Marks(Generic[Waiter]):
    """All marks that are not as they should be, and the brief ones that were set lately."""

    def __init__(self) -> None:
        self._open: dict[Spot, dict[str, Mark[Waiter]]] = {}
        self._known: OrderedDict[tuple[str, str, str], bool] = OrderedDict()
        self._served: dict[str, int] = {}
        self._calls = 0

    def ask(
        self, channel: str, ts: str, name: str, waiter: Waiter, *, wanted: bool, unsure: bool
    ) -> Mark[Waiter]:
        """Somebody wants it there, or away. ``unsure``: that may have been done before."""
        names = self._open.setdefault((channel, ts), {})
        mark = names.get(name)
        if mark is None:
            mark = names[name] = Mark(channel, ts, name)
            mark.there = self._known.get((channel, ts, name))
            if mark.there is None and mark.brief and wanted and not unsure:
                # Of the others it is not remembered whether they were set before.
                mark.there = False
        mark.wanted = wanted
        mark.put_off = mark.put_off and wanted
        mark.waiters.append(waiter)
        return mark

    def drop(self, mark: Mark[Waiter]) -> None:
        """It needs nothing more."""
        names = self._open.get(mark.spot, {})
        if names.get(mark.name) is mark:
            del names[mark.name]
        if not names:
            self._open.pop(mark.spot, None)
        if mark.brief and mark.there is not None:
            self._known[mark.channel, mark.ts, mark.name] = mark.there
            self._known.move_to_end((mark.channel, mark.ts, mark.name))
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)

    def found(self, spot: Spot, names: frozenset[str]) -> list[Mark[Waiter]]:
        """Slack told which marks of ours a message has. Returns those that were not known."""
        marks = [mark for mark in self._open.get(spot, {}).values() if mark.there is None and not mark.busy]
        for mark in marks:
            mark.there = mark.name in names
        return marks

    def next(self, step: Step) -> Mark[Waiter] | None:
        """The mark to do that with now, None if there is none. Those that stay go first, and the channels take
        turns: no worker can keep the others waiting."""
        due = self.removals_due
        ready = [mark for mark in self._all() if self._step(mark) == step]
        if step == "add":
            ready = [mark for mark in ready if not mark.brief or due < BRIEF[mark.name]]
        return min(ready, key=self._order, default=None)

    def begin(self, mark: Mark[Waiter]) -> None:
        """A call for it is under way."""
        mark.busy = True
        self._calls += 1
        self._served[mark.channel] = self._calls

    def put_off(self, mark: Mark[Waiter]) -> list[Waiter]:
        """Set it when there is room, if that comes while few others wait for it. Returns those to be told."""
        waiters = mark.told()
        mark.put_off = True
        waiting = [other for other in self._all() if other.put_off and other.channel == mark.channel]
        for other in waiting[:-PUT_OFF]:
            if not (other.busy or other.waiters):
                self.drop(other)
        return waiters

    @property
    def removals_due(self) -> int:
        """How many removals wait, those among them that may turn out to be needless."""
        return sum(self._step(mark) in ("remove", "look") for mark in self._all())

    def unhurried(self) -> list[Mark[Waiter]]:
        """The brief marks that somebody waits for and that have not been set."""
        return [mark for mark in self._all() if mark.brief and mark.waiters and self._step(mark) == "add"]

    def crowded(self) -> list[Mark[Waiter]]:
        """Those of them for which too many removals wait."""
        due = self.removals_due
        return [mark for mark in self.unhurried() if due >= BRIEF[mark.name]]

    def _order(self, mark: Mark[Waiter]) -> tuple[bool, int]:
        return mark.brief, self._served.get(mark.channel, 0)

    def _all(self) -> Iterator[Mark[Waiter]]:
        for names in self._open.values():
            yield from names.values()

    def _step(self, mark: Mark[Waiter]) -> Step | None:
        if mark.busy or mark.right:
            return None
        if mark.wanted:
            return "add"
        if self._replaced_later(mark):
            return None
        if mark.there is None:
            return None if self._looked_at(mark.spot) else "look"
        return "remove"

    def _looked_at(self, spot: Spot) -> bool:
        """One look tells of all marks of a message."""
        return any(mark.busy and mark.there is None and not mark.wanted for mark in self._open[spot].values())

    def _replaced_later(self, mark: Mark[Waiter]) -> bool:
        """The mark that comes in its place is not there yet; a message never stands without one."""
        others = self._open.get(mark.spot, {}).values()
        return any(other.wanted and not other.right for other in others)
