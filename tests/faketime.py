"""Programs whose wall clock can be set while they run (libfaketime); what measures spans goes on as ever."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import sysconfig
from datetime import timedelta
from pathlib import Path

from tests.programs import require

LIBRARY = "libfaketimeMT.so.1"
# -a: an interpreter finds its environment, and what it starts, by the name it was called by.
PYTHON = """\
#!/bin/bash
export LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={offset} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
exec -a "$0" {python} "$@"
"""
# libfaketime (0.9.10) now and then refuses the absolute deadline by which Python sleeps: EINVAL.
# It knows no clock that goes on while a machine sleeps, either.
PATCHES = """\
import select, time
gettime = time.clock_gettime

def with_sleep(clock):
    return gettime(clock) + (float(open({slept!r}).read()) if clock == time.CLOCK_BOOTTIME else 0)

time.clock_gettime = with_sleep
time.sleep = lambda seconds: select.select([], [], [], seconds) and None
"""
INSTEAD = """\
#!/bin/bash
shift
exec {python} "$@"
"""


class WallClock:
    """An environment of its own around this interpreter. ``prefix``, put before a command of this interpreter,
    runs it, and every interpreter that it starts, by this clock."""

    def __init__(self, root: Path) -> None:
        require("faketime")
        [library] = sorted(Path("/usr/lib").glob(f"**/{LIBRARY}"))[:1]
        (root / "bin").mkdir(parents=True)
        self._offset = root / "offset"
        self._slept = root / "slept"
        self.set(timedelta())
        _replace(self._slept, timedelta())
        here = Path(sys.prefix)
        shutil.copy(here / "pyvenv.cfg", root)
        ours, theirs = (Path(sysconfig.get_path("purelib", vars={"base": str(top)})) for top in (root, here))
        ours.mkdir(parents=True)
        # Not sitecustomize: Debian's Python has one of its own.
        (ours / "all.pth").write_text(f"import site; site.addsitedir({str(theirs)!r})\nimport faked_clock\n")
        (ours / "faked_clock.py").write_text(PATCHES.format(slept=str(self._slept)))
        python = root / "bin" / "python"
        real = Path(sys.executable).resolve()
        _script(python, PYTHON.format(library=library, offset=self._offset, python=real))
        _script(root / "bin" / "instead", INSTEAD.format(python=python))
        self.prefix = (str(root / "bin" / "instead"),)

    def set(self, offset: timedelta) -> None:
        """From now on the clock is that far ahead of the real one."""
        _replace(self._offset, offset)

    def sleep(self, time: timedelta) -> None:
        """The machine wakes after so long."""
        _replace(self._slept, time)
        self.set(time)


def _replace(file: Path, offset: timedelta) -> None:
    new = file.with_suffix(".new")
    new.write_text(f"{offset.total_seconds():+.0f}\n")
    new.rename(file)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def family(pid: int) -> list[int]:
    """A process and all that it and its descendants have started."""
    found = [pid]
    with contextlib.suppress(OSError):  # it has just ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found


def is_faked(pid: int) -> bool:
    """Does a process live by a clock of ours?"""
    return LIBRARY in Path(f"/proc/{pid}/maps").read_text()


def signal_family(pid: int, number: int) -> None:
    """Send a signal to all of them."""
    for each in family(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)
