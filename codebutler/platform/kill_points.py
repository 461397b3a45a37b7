"""Labelled points at which a test can kill this process, as a power cut or the kernel's OOM killer would.

``reached`` raises an audit event of the interpreter, which costs next to nothing while nobody listens. There is a
listener only if ``watch`` found VARIABLE in the environment the process was started with: no configuration file or
message can put it there, it holds a path and no secret, and agents, whose environment is built explicitly, never see
it. All it can do is end the process that has it.

The directory in VARIABLE contains, per process (``parent``, ``worker:NAME``): ``PROCESS.passed``, one label per line as
they are passed, and ``PROCESS.plan``, lines of ``label k``: the first one ends the process at its k-th passage and is
removed, so that the next process continues with the next line.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "CODEBUTLER_KILL_POINTS"
EVENT = "codebutler.reached"


def reached(label: str) -> None:
    """Record that this point was passed."""
    sys.audit(EVENT, label)


def watch(process: str, environment: Mapping[str, str]) -> None:
    """Enable plans for ``process`` if the environment asks for it. It cannot be undone."""
    if directory := environment.get(VARIABLE):
        sys.addaudithook(_Watcher(Path(directory), process))


class _Watcher:
    """Called by the interpreter for every audit event, on the thread where it happens."""

    def __init__(self, directory: Path, process: str) -> None:
        self._passed = directory / f"{process}.passed"
        self._plan = directory / f"{process}.plan"
        self._aim: list[str] = []
        self._count = 0

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        if event == EVENT:
            self._note(str(args[0]))

    def _note(self, label: str) -> None:
        with self._passed.open("a") as passed:
            passed.write(f"{label}\n")
        try:
            plan = self._plan.read_text().splitlines()
        except FileNotFoundError:
            return
        if plan != self._aim:
            self._aim, self._count = plan, 0
        if not plan or label != plan[0].split()[0]:
            return
        self._count += 1
        if self._count >= int(plan[0].split()[1]):
            self._end(plan[1:])

    def _end(self, rest: list[str]) -> None:
        successor = self._plan.with_suffix(".next")
        successor.write_text("".join(f"{line}\n" for line in rest))
        successor.replace(self._plan)
        os.kill(os.getpid(), signal.SIGKILL)
