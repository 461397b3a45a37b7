"""What a process holds: memory, descriptors, threads; from /proc (Linux)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    rss_mb: float
    fds: int
    threads: int


@dataclass
class Life:
    """One life of a supervisor, sampled each second. ``fds`` and ``threads`` come and go with what is under way."""

    pid: int
    samples: list[Sample] = field(default_factory=list)

    def told(self) -> str:
        """Medians of its first and of its last quarter, and the most there ever was."""
        if len(self.samples) < 8:
            return f"{len(self.samples):4d} s"
        quarter = len(self.samples) // 4
        first, last = self.samples[:quarter], self.samples[-quarter:]
        parts = []
        for name in ("rss_mb", "fds", "threads"):
            most = max(_values(self.samples, name))
            parts.append(f"{name} {_median(first, name):.0f} → {_median(last, name):.0f} (most {most:.0f})")
        return f"{len(self.samples):4d} s  " + "   ".join(parts)


def sample(pid: int) -> Sample | None:
    """None if the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        fds = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return None
    rss, threads = re.search(r"VmRSS:\s+(\d+)", status), re.search(r"Threads:\s+(\d+)", status)
    if rss is None or threads is None:
        return None  # a zombie has no memory
    return Sample(int(rss[1]) / 1024, fds, int(threads[1]))


async def watch(pid_now: Callable[[], int | None], lives: list[Life]) -> None:
    """Sample whoever supervises, for ever."""
    while True:
        pid = pid_now()
        if pid is not None:
            if not lives or lives[-1].pid != pid:
                lives.append(Life(pid))
            if taken := sample(pid):
                lives[-1].samples.append(taken)
        await asyncio.sleep(EVERY_S)


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    found: list[int] = []
    for entry in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in entry.read_text().split()]
    return found


def below(pid: int) -> list[int]:
    """All descendants, the nearest first."""
    found = children(pid)
    for child in found:
        found.extend(children(child))
    return found


def belonging_to(home: Path) -> list[int]:
    """Every live process that was started for the supervisor's home."""
    wanted = f"CODEBUTLER_HOME={home}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def command_of(pid: int) -> str:
    """Its command line, "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


def _values(samples: list[Sample], name: str) -> list[float]:
    return [float(getattr(each, name)) for each in samples]


def _median(samples: list[Sample], name: str) -> float:
    return statistics.median(_values(samples, name))
