"""What messages cost: processor time, memory and disk, by thousands, and whether it stays the same. Linux."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.soak.gauges import sample

FLAT = 1.2
"""How much more than in the first part a message may cost in the last."""
MORE_MB = 15.0
"""How much more memory: an arena of the allocator more or less is no leak."""
WORK = 20_000
NO_COST = ("backups", "supervise.out")
"""In the home: one copy a day, and what the test itself keeps."""


@dataclass(frozen=True, slots=True)
class Meter:
    """What was used up to a moment. ``children_s`` is the worker's agents, git and walls."""

    at_s: float
    parent_s: float
    worker_s: float
    children_s: float
    home_bytes: int
    repo_bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """What ``messages`` cost each, and what the two processes held after the last. ``speed``: the processor seconds
    that the same piece of work took meanwhile, since a busy machine is slower for the same instructions."""

    messages: int
    seconds: float
    parent_ms: float
    worker_ms: float
    children_ms: float
    bytes: float
    parent_mb: float
    worker_mb: float
    fds: tuple[int, int]
    speed: float

    def told(self) -> str:
        """A row of the table."""
        return (
            f"{self.messages:>8}{self.seconds:>8.0f}{self.parent_ms:>10.1f}{self.worker_ms:>10.1f}"
            f"{self.children_ms:>10.1f}{self.bytes:>10.0f}{self.parent_mb:>10.1f}{self.worker_mb:>10.1f}"
            f"{self.fds[0]:>6}{self.fds[1]:>6}{self.speed * 1000:>8.1f}"
        )


HEAD = (
    f"{'messages':>8}{'s':>8}{'parent ms':>10}{'worker ms':>10}{'agents ms':>10}{'bytes':>10}{'parent MB':>10}"
    f"{'worker MB':>10}{'fds':>6}{'fds':>6}{'unit ms':>8}"
)


def part(messages: int, began: Meter, ended: Meter, pids: tuple[int, int], speed: float) -> Part:
    """The costs between two moments. Raises LookupError if one of the processes is gone."""
    held = [sample(pid) for pid in pids]
    if held[0] is None or held[1] is None:
        raise LookupError("the supervisor or its worker is gone")
    return Part(
        messages=messages,
        seconds=ended.at_s - began.at_s,
        parent_ms=(ended.parent_s - began.parent_s) / messages * 1000,
        worker_ms=(ended.worker_s - began.worker_s) / messages * 1000,
        children_ms=(ended.children_s - began.children_s) / messages * 1000,
        bytes=(ended.home_bytes + ended.repo_bytes - began.home_bytes - began.repo_bytes) / messages,
        parent_mb=held[0].rss_mb,
        worker_mb=held[1].rss_mb,
        fds=(held[0].fds, held[1].fds),
        speed=speed,
    )


def verdict(parts: Sequence[Part]) -> list[str]:
    """What is not flat from the first part to the last; [] if all is. Pure. One part alone says nothing."""
    if len(parts) < 2:
        return ["too few messages for a verdict"]
    first, last = parts[0], parts[-1]
    found = []
    for name in ("parent_ms", "worker_ms", "children_ms"):
        before, after = getattr(first, name) / first.speed, getattr(last, name) / last.speed
        if after > before * FLAT:
            found.append(
                f"{name}: {getattr(last, name):.1f} after {getattr(first, name):.1f} ({after / before:.2f}×)"
            )
    if last.bytes > first.bytes * FLAT:
        found.append(f"bytes: {last.bytes:.0f} after {first.bytes:.0f} ({last.bytes / first.bytes:.2f}×)")
    for name in ("parent_mb", "worker_mb"):
        settled = max(getattr(each, name) for each in parts[: max(1, len(parts) // 4)])
        if (after := getattr(last, name)) > settled + MORE_MB:
            found.append(f"{name}: {after:.1f} after {settled:.1f}")
    if max(last.fds[0] - first.fds[0], last.fds[1] - first.fds[1]) > 10:
        found.append(f"open files: {last.fds} after {first.fds}")
    return found


def ratios(parts: Sequence[Part]) -> str:
    """The last part's costs over the first's, as the verdict compares them."""
    first, last = parts[0], parts[-1]
    told = [
        f"{name} {getattr(last, name) / last.speed / (getattr(first, name) / first.speed):.2f}"
        for name in ("parent_ms", "worker_ms", "children_ms")
    ]
    return ", ".join([*told, f"bytes {last.bytes / first.bytes:.2f}"])


def meter(parent: int, worker: int, home: Path, repo: Path) -> Meter:
    """Read all gauges. Raises OSError if a process is gone."""
    own_s, _ = processor_s(parent)
    worker_s, children_s = processor_s(worker)
    return Meter(time.monotonic(), own_s, worker_s, children_s, size(home, NO_COST), size(repo))


def processor_s(pid: int) -> tuple[float, float]:
    """Processor time of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / ticks, (int(fields[13]) + int(fields[14])) / ticks


def size(directory: Path, without: Collection[str] = ()) -> int:
    """The bytes in its files; ``without`` are names of files and folders that do not count."""
    total = 0
    for root, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if name not in without]
        for name in (name for name in files if name not in without):
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - of many files
    return total


def unit_s() -> float:
    """Processor seconds of a fixed piece of work."""
    began_s = time.process_time()
    sum(number * number for number in range(WORK))
    return time.process_time() - began_s


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
