"""Who is told when something happens. It is made first, so that who tells and who hears need not know each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVarTuple

Told = TypeVarTuple("Told")


class Observers(Generic[*Told]):
    """``tell`` calls everybody who was added, in order, with what it is given."""

    def __init__(self) -> None:
        self._observers: list[Callable[[*Told], None]] = []

    def add(self, observer: Callable[[*Told], None]) -> None:
        """``observer`` is told from now on."""
        self._observers.append(observer)

    def tell(self, *told: *Told) -> None:
        """It has happened."""
        for observer in self._observers:
            observer(*told)
