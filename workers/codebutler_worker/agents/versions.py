"""Which versions of the programs behind agents work, and which were tested: the data, and how one is judged."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.lookup import CLAUDE_CODE, KIMI_CODE
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.sandbox.port import Launch

Version = tuple[int, int, int]
SAID_BYTES = 4_000
_VERSION = re.compile(r"(?<![\d.])(\d+)\.(\d+)\.(\d+)")


def version_in(text: str) -> Version | None:
    """The first version in a text."""
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def dotted(version: Version | None) -> str:
    """The version as people write it, "" for none."""
    return ".".join(map(str, version or ()))


@dataclass(frozen=True, slots=True)
class Supported:
    """A supported program: ``floor`` is the oldest version that works, ``tested`` the newest one tested; ``install`` is
    the line that installs that one. ``probe_s``: how long it may take to print its version."""

    name: str
    floor: Version
    tested: Version
    install: str
    probe_s: float

    def judge(self, version: Version) -> str:
        """A note for the log, empty if all is well. Raises AgentUnavailableError below the floor."""
        if version < self.floor:
            raise AgentUnavailableError(
                f"{self.name} {dotted(version)} is too old: update it with `{self.install}`"
            )
        if version > self.tested:
            return f"{self.name} {dotted(version)} is newer than {dotted(self.tested)}, the newest one tested"
        return ""

    async def ask(self, argv: Sequence[str], env: Mapping[str, str]) -> str:
        """The output of ``argv --version``. Raises AgentUnavailableError if it does not answer."""
        secretless = {key: value for key, value in env.items() if "KEY" not in key}
        said = b""
        launch = Launch((*argv, "--version"), secretless, Path("/"))
        async with await AgentProcess.spawn(launch) as process:
            try:
                async with asyncio.timeout(self.probe_s):
                    async for line in process.lines():
                        said += line[: SAID_BYTES - len(said)] + b"\n"
            except TimeoutError:
                raise AgentUnavailableError(
                    f"`{Path(argv[-1]).name} --version` does not answer: reinstall {self.name} with `{self.install}`"
                ) from None
        return said.decode(errors="replace")


CLAUDE = Supported(CLAUDE_CODE.title, (2, 1, 197), (2, 1, 328), CLAUDE_CODE.install, probe_s=20.0)
KIMI = Supported(KIMI_CODE.title, (2, 0, 2), (2, 1, 0), KIMI_CODE.install, probe_s=30.0)
NODE_FLOOR: Version = (22, 19, 0)
"""The oldest Node on which Kimi Code starts."""
SUPPORTED: Mapping[str, Supported] = MappingProxyType({"claude": CLAUDE, "kimi": KIMI})
"""By the name of the agent. Any other agent's program has no version of its own that we know."""
