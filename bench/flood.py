"""Floods: a gigabyte of output through one command, envelopes found in a flood, and twenty commands at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Figure, limit
from bench.scene import DEADLINE_S, BenchError, Pace, Scene, all_ready, scene
from codebutler.domain.clock import SystemClock
from codebutler.text.envelopes import EnvelopeParser
from codebutler_worker.agents.session_logs import SESSIONS, SessionLogs
from codebutler_worker.store.opening import prepare_state_dir

GB = 1_000_000_000
SLOWEST_S = 20.0
"""For a gigabyte: 50 MB/s."""
LOOK_S = 0.02
GROWTH_MB = 20
PIECE = 64 * 2**10
SESSIONS_AT_ONCE = 20
LINE = "0123456789" * 7
FINAL = "white_check_mark"


@dataclass
class Memory:
    """What a worker holds (PSS), looked at while it works."""

    pid: int
    sizes_mb: list[float] = field(default_factory=list)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look until the block ends."""
        watching = asyncio.create_task(self._watch(), name="memory")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            self.sizes_mb.append(await asyncio.to_thread(pss_mb, self.pid))
            await asyncio.sleep(0.3)

    @property
    def growth_mb(self) -> float:
        """From what it held when it began to the most it ever held."""
        return max(self.sizes_mb) - self.sizes_mb[0]


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Nine figures."""
    async with scene(place / "product", 1) as product:
        await product.supervise()
        through = [*await _one_command(place, product), *await _many(product, pace)]
    return [*through, *_logging(place), *_parsing()]


async def _one_command(place: Path, product: Scene) -> list[Figure]:
    """All the way: from Slack through the worker and its sandbox to the log, and the end of it back to Slack."""
    name = product.names[0]
    logs = place / "product" / "repos" / name / SESSIONS
    # A worker that has shown a terminal before: what it loads once is not what a flood costs.
    await _done(product, product.server.say(name, "!c seq 1 50000"))
    known = set(logs.iterdir())
    status = await product.until_status(all_ready)
    memory = Memory(status["repos"][0]["worker"]["pid"])
    before_s = await asyncio.to_thread(_bare, place)
    async with memory.watched():
        began_s = time.monotonic()
        asked = product.server.say(name, f"!c yes {LINE} | head -c {GB}")
        logged_s = await _whole(logs, known) - began_s
        await _done(product, asked)
        seconds = time.monotonic() - began_s
    # Others use this machine too: what it can do is looked at on both sides of what we did.
    bare_s = (before_s + await asyncio.to_thread(_bare, place)) / 2
    (log,) = set(logs.iterdir()) - known
    missing = abs(GB - _size_before_last_line(log))
    log.unlink()
    sizes = f"{min(memory.sizes_mb):.0f}-{max(memory.sizes_mb):.0f} MB"
    print(
        f"  flood: {GB / logged_s / 1e6:.0f} MB/s into the log, {GB / seconds / 1e6:.0f} MB/s until all is said; "
        f"bare {GB / bare_s / 1e6:.0f} MB/s; the worker holds {sizes}"
    )
    return [
        limit("1 GB through one command: from the message until it is in the log", logged_s, SLOWEST_S, "s"),
        Figure(
            what="the same against a bare loop from a terminal to a file",
            measured=logged_s,
            against=bare_s,
            against_what="bare",
            unit="s",
            reach=1.5,
        ),
        limit("the same: until its message has its final mark", seconds, SLOWEST_S, "s"),
        limit("the same: growth of memory", memory.growth_mb, GROWTH_MB, "MB"),
        limit("the same: bytes missing in its log", missing, 0, "bytes"),
    ]


async def _whole(logs: Path, known: set[Path]) -> float:
    """When the one new log holds a gigabyte. Raises BenchError."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        if any(log.stat().st_size >= GB for log in set(logs.iterdir()) - known):
            return time.monotonic()
        await asyncio.sleep(LOOK_S)
    raise BenchError("the log never became whole")


async def _done(product: Scene, *asked: str, within_s: float = DEADLINE_S) -> None:
    """Wait until all these messages have their final mark. Raises BenchError."""
    name = product.names[0]

    def ended() -> bool:
        threads = [product.server.thread(name, ts) for ts in asked]
        return all(FINAL in {mark["name"] for mark in thread[0].get("reactions", [])} for thread in threads)

    try:
        await product.server.until(ended, within_s)
    except TimeoutError:
        raise BenchError(f"not all {len(asked)} commands ended") from None


def _bare(place: Path) -> float:
    """Seconds for as much output of the same command from a terminal to a file, by a loop that does nothing else:
    what the system can do now."""
    part = 5
    ours, theirs = os.openpty()
    command = ["bash", "-c", f"yes {LINE} | head -c {GB // part}"]
    began_s = time.monotonic()
    with (
        (place / "bare.log").open("wb", buffering=0) as file,
        subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True),
    ):
        os.close(theirs)
        with contextlib.suppress(OSError):  # EIO is the end
            while data := os.read(ours, PIECE):
                file.write(data)
    os.close(ours)
    (place / "bare.log").unlink()
    return (time.monotonic() - began_s) * part


def _logging(place: Path) -> list[Figure]:
    repo = place / "repo"
    repo.mkdir()
    prepare_state_dir(repo)
    logs = SessionLogs(repo, 1)
    log = logs.open("writing1", SystemClock().now())
    piece = os.urandom(PIECE)
    began_s = time.monotonic()
    for _ in range(GB // PIECE):
        log.write(piece)
    seconds = time.monotonic() - began_s
    log.close(seconds, SystemClock().now())
    for file in (repo / SESSIONS).iterdir():
        file.unlink()
    if log.failed:
        raise BenchError(f"the log could not be written: {log.failed}")
    return [limit("1 GB into a session's log", seconds, SLOWEST_S, "s")]


def _parsing() -> list[Figure]:
    text = f"{LINE} <b>\n" * 300 + "<<<SLACK:progress>>>\nfound 3\n<<<END_SLACK>>>\n"
    text *= 100_000_000 // len(text)
    parser = EnvelopeParser()
    began_s = time.monotonic()
    for at in range(0, len(text), PIECE):
        parser.feed(text[at : at + PIECE])
    seconds = (time.monotonic() - began_s) * GB / len(text)
    return [limit("envelopes in 1 GB of text", seconds, SLOWEST_S, "s")]


async def _many(product: Scene, pace: Pace) -> list[Figure]:
    """Commands that write twice a second, all in one channel."""
    name = product.names[0]
    command = f"!c for i in $(seq {2 * pace.busy_s}); do echo working $i; sleep 0.5; done"
    asked = [product.server.say(name, command) for _ in range(SESSIONS_AT_ONCE)]
    await _done(product, *asked, within_s=pace.busy_s + 3 * DEADLINE_S)
    lost = sum(_last_line(product.server.thread(name, ts)) != 2 * pace.busy_s for ts in asked)
    refused = product.server.limits.violations
    print(f"  flood: calls {dict(product.server.limits.calls)}; beyond Slack's limits {dict(refused)}")
    what = f"{SESSIONS_AT_ONCE} commands at once"
    return [
        limit(f"{what}: calls beyond Slack's limits", refused.total(), 0, "calls"),
        limit(f"{what}: whose output is not there at the end", lost, 0, "commands"),
    ]


def _last_line(thread: list[dict[str, object]]) -> int:
    """The number in the last line that a command has shown."""
    shown = "\n".join(str(message.get("text", "")) for message in thread if message.get("bot_id"))
    numbers = [int(line.split()[1]) for line in shown.splitlines() if line.startswith("working ")]
    return max(numbers, default=0)


def _size_before_last_line(log: Path) -> int:
    with log.open("rb") as file:
        file.seek(-300, os.SEEK_END)
        return log.stat().st_size - len(file.read().partition(b"\n--- session ")[2]) - len(b"\n--- session ")


def pss_mb(pid: int) -> float:
    """The proportional set size of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
