"""What of an agent's prose is streamed while it is written: only what will not be taken back. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

MOST_CHARS = 10_000
"""Slack: 12,000 characters in one message; whoever has read so much can wait for the rest."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The blocks of prose that are whole, and what there is so far of the one that is being written."""

    whole: str = ""
    block: str = ""

    def writing(self, text: str) -> Growth:
        """There is so much of the block now. Its last word may not be whole: it waits."""
        return replace(self, block=_without_last_word(text))

    def written(self, text: str) -> Growth:
        """The block is whole."""
        return Growth(whole=_joined(self.whole, text.strip())[: MOST_CHARS + 1])

    @property
    def text(self) -> str:
        """All that may be shown."""
        text = _joined(self.whole, self.block)
        return text if len(text) <= MOST_CHARS else _without_last_word(text[:MOST_CHARS])


def more(shown: str, text: str) -> str | None:
    """What is to be added to ``shown`` so that it says ``text``; None if nothing added can do that."""
    return text[len(shown) :] if text.startswith(shown) else None


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _without_last_word(text: str) -> str:
    text = text.lstrip()
    end = max(text.rfind(space) for space in " \n\t")
    return text[: max(end, 0)].rstrip()
