"""One supervisor per home: the lock is the kernel's, not a file's content."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from codebutler.domain.errors import LockHeldError
from codebutler.supervisor.supervisor import SupervisorLock

HOLDER = """
import pathlib, subprocess, sys
from codebutler.supervisor.supervisor import SupervisorLock
with SupervisorLock(pathlib.Path(sys.argv[1])):
    child = subprocess.Popen(["sleep", "300"], close_fds=False, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


def test_a_killed_holder_frees_it_though_a_child_of_his_lives(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder, holder.stdin, holder.stdout:
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(LockHeldError, match=f"pid {holder.pid}"), SupervisorLock(path):
                pass
            holder.kill()
            holder.wait()
            with SupervisorLock(path):
                assert path.read_text().strip() == str(os.getpid())
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_stale_pid_means_nothing(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.lock"
    path.write_text(f"{os.getppid()}\n")
    with SupervisorLock(path):
        assert path.read_text().strip() == str(os.getpid())
    assert path.read_text() == ""
