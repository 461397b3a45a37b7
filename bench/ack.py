"""From an envelope to its ack at a steady rate: ours, which stores the event, beside slack_bolt's, which does not.

Held to slack_bolt's ack plus one durable commit of the same disk, made at the same rate: a machine that dozes
between two events is slower than one that is kept busy. The runs are short and alternate, and medians of runs
are quoted, because the machine is shared. The events are deletions of messages nobody knows: taken in, journaled
and stored by the worker like any other, but no agent starts for them. All of it is kept in memory where there is a
file system of that kind, so that a shared disk does not decide.

The sum is a hard thing to be held to: each of its parts, measured alone, finds its own code and data in the
processor's caches, and no program that does both is as quick. What slack_bolt takes that commits each event before
it acknowledges it, which is the least a program with our promise can do, is printed beside.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import Figure, median, percentile
from bench.peer import bolt
from bench.scene import DEADLINE_S, Pace, scene
from codebutler.workspace.server import Options, WorkspaceServer
from tests.ordinary import open_the_way

WARM_UP_EVENTS = 50
ROW = "x" * 400
MEMORY = Path("/dev/shm")


@dataclass
class Runs:
    """The median and the 99th percentile of each run, in milliseconds."""

    medians: list[float] = field(default_factory=list)
    p99s: list[float] = field(default_factory=list)

    def add(self, seconds: list[float]) -> None:
        """One run more, of which the median and the 99th percentile are kept, in milliseconds."""
        self.medians.append(median(seconds) * 1000)
        self.p99s.append(percentile(seconds, 99) * 1000)


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Two figures: median and 99th percentile."""
    with in_memory(place) as held:
        return await _measured(held, pace)


async def _measured(place: Path, pace: Pace) -> list[Figure]:
    ours, bolts, disk, keepers = Runs(), Runs(), Runs(), Runs()
    async with (
        scene(place / "product") as product,
        WorkspaceServer(Options(channels=product.names)) as other,
        WorkspaceServer(Options(channels=product.names)) as third,
        bolt(other, "bolt_app.py"),
        bolt(third, "bolt_app.py", str(place / "keeper.db")),
    ):
        await product.supervise()
        for number in range(pace.rounds):
            ours.add(await _acks(product.server, pace))
            bolts.add(await _acks(other, pace))
            disk.add(await asyncio.to_thread(_commits, place / f"disk{number}.db", pace))
            keepers.add(await _acks(third, pace))
    print(f"  ack ms median, p99 of each run: ours {_told(ours)} bolt {_told(bolts)} commit {_told(disk)}")
    print(f"  slack_bolt that commits first {_told(keepers)}: median {median(keepers.medians):.2f}")
    return [
        _figure("envelope → ack, median", ours.medians, bolts.medians, disk.medians, 1.3),
        _figure("envelope → ack, p99", ours.p99s, bolts.p99s, disk.p99s, 2.0),
    ]


@contextmanager
def in_memory(place: Path) -> Iterator[Path]:
    """A directory in a memory file system, or ``place`` where there is none."""
    if not MEMORY.is_dir():
        place.mkdir(parents=True)
        yield place
        return
    with TemporaryDirectory(prefix="cb-bench-", dir=MEMORY, ignore_cleanup_errors=True) as held:
        open_the_way(Path(held))
        yield Path(held)


def _figure(what: str, ours: list[float], bolts: list[float], disk: list[float], reach: float) -> Figure:
    return Figure(
        what=what,
        measured=median(ours),
        against=median(bolts) + median(disk),
        against_what=f"slack_bolt {median(bolts):.2f} + commit {median(disk):.2f}",
        reach=reach,
    )


def _told(runs: Runs) -> str:
    return " ".join(f"{m:.2f}/{p:.2f}" for m, p in zip(runs.medians, runs.p99s, strict=True))


async def _acks(server: WorkspaceServer, pace: Pace) -> list[float]:
    """The seconds each ack took, those of the warm-up left out."""
    taken: list[float] = []
    server.hub.on_ack = taken.append
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for number in range(WARM_UP_EVENTS + pace.events):
        await asyncio.sleep(max(0.0, began_s + number / pace.per_s - loop.time()))
        tell_deletion(server)
    await server.until(lambda: server.hub.pending == 0, DEADLINE_S)
    server.hub.on_ack = None
    return taken[WARM_UP_EVENTS:]


def tell_deletion(server: WorkspaceServer) -> None:
    """An event that costs nothing but to be taken in."""
    workspace = server.workspace
    channel = next(iter(workspace.channels.values()))
    ts = workspace.next_ts()
    previous = {"type": "message", "user": workspace.person.id, "text": "gone", "ts": ts}
    server.context.announcer.message_deleted(channel, ts, previous)


def _commits(path: Path, pace: Pace) -> list[float]:
    """The seconds each durable commit of one row took."""
    taken: list[float] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, content TEXT)")
        for _ in range(pace.events):
            time.sleep(1 / pace.per_s)
            began_s = time.monotonic()
            connection.execute("INSERT INTO rows (content) VALUES (?)", (ROW,))
            taken.append(time.monotonic() - began_s)
    return taken
