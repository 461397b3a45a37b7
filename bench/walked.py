"""Runs a supervisor and its workers with every call of our functions noted: what `bench walk` counts.

Run as a program in front of the supervisor's command: ``walked.py PYTHON -I -m codebutler supervise``. Each process
writes, when it ends, one file into ``walk`` of its home: each function with the moments at which it ran.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FrameType

import msgspec

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("codebutler", "codebutler_worker")
INNER = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
OPTIMIZED = 0x1
"""Of a code object's flags (`inspect.CO_OPTIMIZED`): set for functions, not for modules and bodies of classes."""


class Seen(msgspec.Struct, frozen=True):
    """One of our functions: its file below ``codebutler`` or ``codebutler_worker``, and when it ran (monotonic)."""

    file: str
    name: str
    line: int
    at_s: list[float]


class Recorder:
    """Notes every call of a function in ``packages``, in every thread that starts after ``install``."""

    def __init__(self, packages: Iterable[str] = PACKAGES) -> None:
        self._packages = frozenset(packages)
        self._files: dict[CodeType, str] = {}
        self._calls: list[tuple[CodeType, float]] = []

    def install(self) -> None:
        """From now on, in this thread and in those to come."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def remove(self) -> None:
        """No more."""
        sys.setprofile(None)
        threading.setprofile(None)

    def seen(self) -> list[Seen]:
        """Every function that ran, once."""
        moments: dict[CodeType, list[float]] = {}
        for code, at_s in self._calls:
            moments.setdefault(code, []).append(at_s)
        return [
            Seen(self._files[code], code.co_qualname, code.co_firstlineno, at_s)
            for code, at_s in moments.items()
        ]

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        file = self._files.get(code)
        if file is None:
            file = self._files[code] = self._ours(code)
        if file:
            self._calls.append((code, time.monotonic()))

    def _ours(self, code: CodeType) -> str:
        """The file from its package on; empty for what is not counted."""
        if code.co_name in INNER or not code.co_flags & OPTIMIZED:
            return ""
        parts = Path(code.co_filename).parts
        # The innermost: a checkout may be called as the package.
        at = max((number for number, part in enumerate(parts) if part in self._packages), default=None)
        return "" if at is None else "/".join(parts[at:])


def worker(connection: Connection) -> None:
    """What the fork server runs instead of the worker's own beginning."""
    from codebutler_worker.worker.bootstrap import main as begin

    recorder = Recorder()
    recorder.install()
    try:
        begin(connection)
    finally:
        recorder.remove()
        _write(recorder, "worker")


def main(arguments: list[str]) -> int:
    """The supervisor's command, in this process."""
    # Not this directory, where Python looks first: it has a module named as a dependency of ours.
    sys.path[:] = [*sys.path[1:], str(ROOT)]
    from codebutler.__main__ import main as begin
    from codebutler.supervisor import forkserver

    preload = (*forkserver.WORKER_PRELOAD, "bench.walked")
    forkserver.ForkServer = partial(forkserver.ForkServer, "bench.walked:worker", preload)  # type: ignore[misc,assignment]
    recorder = Recorder()
    recorder.install()
    try:
        return begin(arguments)
    finally:
        recorder.remove()
        _write(recorder, "parent")


def _write(recorder: Recorder, process: str) -> None:
    place = Path(os.environ["CODEBUTLER_HOME"]) / "walk"
    place.mkdir(exist_ok=True)
    (place / f"{process}-{os.getpid()}.json").write_bytes(msgspec.json.encode(recorder.seen()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[sys.argv.index("codebutler") + 1 :]))
