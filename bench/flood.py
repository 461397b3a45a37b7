"""Floods: a gigabyte of output through one command, envelopes found in a flood, and twenty commands at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Figure, limit
from bench.scene import DEADLINE_S, BenchError, Pace, scene
from codebutler.clock import SystemClock
from codebutler.config.programs import RUN
from codebutler.text.envelope import EnvelopeParser
from codebutler_worker.agents.backend import Finished, Output, TurnRequest
from codebutler_worker.agents.record import SESSIONS, SessionLogs
from codebutler_worker.agents.shell.backend import ShellBackend
from codebutler_worker.agents.shell.command import Surroundings
from codebutler_worker.agents.shell.run import Pace as ShellPace
from codebutler_worker.present.terminal import Pages
from codebutler_worker.sandbox.none import NoSandbox
from codebutler_worker.store.state_dir import prepare_state_dir

GB = 1_000_000_000
MB = 2**20
SLOWEST_S = 20.0
"""For a gigabyte: 50 MB/s."""
GROWTH_MB = 20
PIECE = 64 * 2**10
SESSIONS_AT_ONCE = 20
LINE = "0123456789" * 7
FINAL = "white_check_mark"


@dataclass
class Memory:
    """What this process holds, looked at while it works."""

    sizes_mb: list[float] = field(default_factory=list)

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            self.sizes_mb.append(_resident_mb())
            await asyncio.sleep(0.2)

    @property
    def growth_mb(self) -> float:
        """From what it held once it was under way to the most it ever held."""
        start = self.sizes_mb[min(10, len(self.sizes_mb) // 4)]
        return max(self.sizes_mb) - start


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Eight figures."""
    return [*await _one_command(place), *_logging(place), *_parsing(), *await _many(place / "many", pace)]


async def _one_command(place: Path) -> list[Figure]:
    repo = place / "repo"
    repo.mkdir(parents=True)
    prepare_state_dir(repo)
    around = Surroundings(place, "/usr/local/bin:/usr/bin:/bin")
    backend = ShellBackend(RUN, NoSandbox(), around, SessionLogs(repo, 1), SystemClock(), ShellPace())
    command = f"yes {LINE} | head -c {GB}"
    request = TurnRequest(turn_id="gigabyte", conversation="c", prompt=command, workdir=repo)
    pages, memory = Pages(3500), Memory()
    watching = asyncio.create_task(memory.watch())
    before_s = await asyncio.to_thread(_bare, place)
    began_s, ok = time.monotonic(), False
    async for event in backend.start(request):
        if isinstance(event, Output):
            pages.take(event)
            pages.due()
        ok = isinstance(event, Finished) and event.ok
    seconds = time.monotonic() - began_s
    watching.cancel()
    log = repo / SESSIONS / "gigabyte.log"
    missing = abs(GB - _size_before_last_line(log)) if ok else GB
    # Others use this machine too: what it can do is looked at on both sides of what we did.
    bare_s = (before_s + await asyncio.to_thread(_bare, place)) / 2
    print(
        f"  flood: {GB / seconds / 1e6:.0f} MB/s, resident {min(memory.sizes_mb):.0f}-{max(memory.sizes_mb):.0f} MB"
    )
    return [
        limit("1 GB through one command", seconds, SLOWEST_S, "s"),
        Figure(
            what="the same against a bare loop from a terminal to a file",
            measured=seconds,
            against=bare_s,
            against_what="bare",
            unit="s",
            reach=1.5,
        ),
        limit("the same: growth of memory", memory.growth_mb, GROWTH_MB, "MB"),
        limit("the same: bytes missing in its log", missing, 0, "bytes"),
    ]


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
    logs = SessionLogs(place / "repo", 1)
    log = logs.open("writing1", SystemClock().now())
    piece = os.urandom(PIECE)
    began_s = time.monotonic()
    for _ in range(GB // PIECE):
        log.write(piece)
    seconds = time.monotonic() - began_s
    log.close(seconds, SystemClock().now())
    for file in (place / "repo" / SESSIONS).iterdir():
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


async def _many(place: Path, pace: Pace) -> list[Figure]:
    """Commands that write twice a second, all in one channel."""
    async with scene(place, 1) as product:
        await product.supervise()
        name = product.names[0]
        command = f"!c for i in $(seq {2 * pace.busy_s}); do echo working $i; sleep 0.5; done"
        asked = [product.server.say(name, command) for _ in range(SESSIONS_AT_ONCE)]

        def ended() -> bool:
            threads = [product.server.thread(name, ts) for ts in asked]
            return all(
                FINAL in {mark["name"] for mark in thread[0].get("reactions", [])} for thread in threads
            )

        try:
            await product.server.until(ended, pace.busy_s + 3 * DEADLINE_S)
        except TimeoutError:
            raise BenchError(f"not all {SESSIONS_AT_ONCE} commands ended") from None
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


def _resident_mb() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / MB
