"""The parent's memory and speed with each kind of hostile worker."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.ack import tell_deletion
from bench.figures import Figure, limit
from bench.scene import BenchError, Pace, scene
from codebutler.chat.port import Download
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import SystemClock
from codebutler.domain.model import File
from codebutler.observe.logs import Logs
from codebutler.protocol.messages import LogTag
from codebutler.supervisor.forkserver import ForkServer
from codebutler.supervisor.port import Shared
from codebutler.supervisor.supervisor import Supervisor
from tests.workers.services import RecordingServices, entry, repo

DEEDS = ("shut_ears", "swell", "hollow", "ship", "scream", "boast", "print_on", "flood")
MOST_MB = 150
SLOWEST_S = 0.5
TICK_S = 0.01
FILES = 6
FILE_BYTES = 8 * 2**20


class Told(msgspec.Struct):
    """How a parent fared: its peak memory, how late its loop ever was, how many of another's log lines it still has."""

    peak_mb: float
    slowest_s: float
    others_left: int


class Parent(RecordingServices):
    """Keeps nothing that it is told; Slack takes a second for each operation. What is logged goes to a real log."""

    def __init__(self, logs: Logs) -> None:
        super().__init__()
        self._logs = logs

    async def send(self, *_given: object, **_more: object) -> str:
        """Hold the operation for as long as Slack would."""
        await asyncio.sleep(1)
        return "1.1"

    async def fetch(
        self,
        repo: RepoSettings,  # noqa: ARG002 - the port's
        file_id: str,  # noqa: ARG002 - the port's
        take: Callable[[bytes], Awaitable[None]],
    ) -> Download:
        """Five megabytes, whatever is asked for."""
        for _ in range(20):
            await take(b"x" * 2**18)
        return Download(file=File(id="F1"))

    def log(self, repo: str, tag: LogTag, text: str) -> None:
        """Into the log."""
        self._logs.record(repo, tag, text)


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Each in a parent of its own: a peak does not go down again."""
    place.mkdir(parents=True)
    told = {deed: await run(deed, pace.hostile_s) for deed in DEEDS}
    for deed, each in told.items():
        print(f"  hostile: {deed}: {each.peak_mb:.0f} MB, the loop {each.slowest_s:.3f} s late at most")
    what, runs = f"{len(DEEDS)} hostile workers", told.values()
    return [
        limit(f"{what}: the parent's peak memory", max(each.peak_mb for each in runs), MOST_MB, "MB"),
        limit("the same: its loop held up for", max(each.slowest_s for each in runs), SLOWEST_S, "s"),
        limit("the same: others' log lines gone", sum(1 - each.others_left for each in runs), 0, "lines"),
        *await _files(place / "product"),
    ]


async def _files(place: Path) -> list[Figure]:
    """An honest agent with large files, and the whole product."""
    async with scene(place) as product:
        name = product.names[0]
        for number in range(1, FILES + 1):
            (place / "repos" / name / f"{number}.bin").write_bytes(os.urandom(FILE_BYTES))
        await product.supervise()
        assert product.supervisor is not None
        taken: list[float] = []
        product.server.hub.on_ack = taken.append
        asking = asyncio.create_task(product.asked(f"send {FILES} files", "began"))
        while not asking.done():
            tell_deletion(product.server)
            await asyncio.sleep(0.05)
        await asking
        peak_mb = _peak_mb(product.supervisor.pid)
    what = f"{FILES} files of {FILE_BYTES // 2**20} MB of an honest agent"
    return [
        limit(f"{what}: the parent's peak memory", peak_mb, MOST_MB, "MB"),
        limit("the same: envelope → ack, slowest", max(taken), SLOWEST_S, "s"),
    ]


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    (peak,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak) / 1024


async def run(deed: str, seconds: float) -> Told:
    """A parent of its own beside one worker that does ``deed``. Raises BenchError."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.hostile", deed, str(seconds), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise BenchError(f"the parent did not survive {deed}")
    return msgspec.json.decode(said, type=Told)


async def _watched(deed: str, seconds: float, place: Path) -> Told:
    fork_server = ForkServer("tests.workers.scripted:main", ["tests.workers.scripted"])
    fork_server.start()
    with Logs(place / "codebutler.log", "info", str, stream=None) as logs:
        services = Parent(logs)
        async with Supervisor(
            Shared(fork_server.spawn, services, SystemClock(), random.random)
        ) as supervisor:
            supervisor.add(repo("bad", "C01"))
            supervisor.start()
            await supervisor.wait_started()
            services.log("calm", "ERR", "what an honest worker had to say")
            supervisor.deliver(entry(1, deed))
            slowest_s = await _ticking(seconds)
        left = len(logs.ring.recent(repo="calm"))
    return Told(_peak_mb(os.getpid()), slowest_s, left)


async def _ticking(seconds: float) -> float:
    """How late the loop ever was."""
    slowest_s, end_s = 0.0, time.monotonic() + seconds
    while (now_s := time.monotonic()) < end_s:
        await asyncio.sleep(TICK_S)
        slowest_s = max(slowest_s, time.monotonic() - now_s - TICK_S)
    return slowest_s


def main(deed: str, seconds: float) -> None:
    """One parent, and one worker that does ``deed``."""
    with TemporaryDirectory(prefix="cb-hostile-") as place:
        told = asyncio.run(_watched(deed, seconds, Path(place)))
    sys.stdout.buffer.write(msgspec.json.encode(told))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
