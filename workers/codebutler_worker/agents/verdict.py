"""How a turn ended, whichever agent worked. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from codebutler_worker.agents.backend import Reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a turn ended, and one line that says what to do where it did not go well."""

    reason: Reason
    text: str

    @property
    def ok(self) -> bool:
        """Whether the turn was done; stopped and interrupted ones were not."""
        return self.reason == "done"


STOPPED = Verdict("stopped", "Stopped.")


def one_line(text: str, limit: int = 300) -> str:
    """``text`` as a single line of at most ``limit`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
