"""What is known of one agent without starting a turn: whether it is there, and in which version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from codebutler.domain.errors import AgentUnavailableError

# Versions of the programs behind agents: which is said, and whether we can work with it.

Version = tuple[int, int, int]


def version_in(text: str) -> Version | None:
    """The first version in a text."""
    found = re.search(r"(?<![\d.])(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def dotted(version: Version) -> str:
    """The version as people write it."""
    return ".".join(map(str, version))


@dataclass(frozen=True, slots=True)
class Known:
    """A program as it was tried: from ``floor`` on it will do, up to ``tested`` it was tested; ``install`` is the
    line that installs that one."""

    name: str
    floor: Version
    tested: Version
    install: str

    def judge(self, version: Version) -> str:
        """A note for the log, empty if all is well. Raises AgentUnavailableError below the floor."""
        if version < self.floor:
            raise AgentUnavailableError(
                f"{self.name} {dotted(version)} is too old: update it with `{self.install}`"
            )
        if version > self.tested:
            return f"{self.name} {dotted(version)} is newer than {dotted(self.tested)}, the newest one tested"
        return ""


# What is known of one agent without starting a turn.


@dataclass(frozen=True, slots=True)
class Survey:
    """One agent: ``prefix`` is what people write before the colon; ``ready``, or ``note`` says what to do.

    ``version`` is "" where there is none to tell.
    """

    prefix: str
    ready: bool
    note: str = ""
    version: str = ""
