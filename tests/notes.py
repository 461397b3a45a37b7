"""A disk for notes that outlive a sender."""

from __future__ import annotations

from codebutler.domain.errors import StoreError


class Notes:
    """``kept`` is what is on it, as long as it is not full."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.is_full = False

    async def note(self, name: str) -> str:
        return self.kept.get(name, "")

    async def keep_note(self, name: str, value: str) -> None:
        if self.is_full:
            raise StoreError("the disk is full")
        self.kept[name] = value
