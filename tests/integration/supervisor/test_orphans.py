"""What a dead supervisor left is told from everything else, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from codebutler.platform.processes import MARK, kill_orphans, own_mark

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@contextmanager
def sleeper(**env: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "300"], env={"PATH": os.environ["PATH"], **env})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def mark_of_the_dead() -> str:
    script = "from codebutler.platform.processes import own_mark; print(own_mark())"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip()


def test_a_stopped_process_of_a_dead_supervisor_is_ended_and_no_other() -> None:
    dead = mark_of_the_dead()
    elsewhere = f"{dead.rpartition('-')[0]}-1"
    with (
        sleeper(**{MARK: dead}) as orphan,
        sleeper(**{MARK: own_mark()}) as ours,
        sleeper(**{MARK: elsewhere}) as others,
        sleeper() as stranger,
    ):
        orphan.send_signal(signal.SIGSTOP)
        assert kill_orphans() >= 1
        assert orphan.wait(5) == -signal.SIGKILL
        assert [process.poll() for process in (ours, others, stranger)] == [None] * 3


def test_a_pid_that_is_used_again_owns_nothing() -> None:
    pid, _, rest = own_mark().partition("-")
    reused = f"{pid}-1-{rest.partition('-')[2]}"
    with sleeper(**{MARK: reused}) as orphan:
        kill_orphans()
        assert orphan.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("mark", ["", "x", "-", "1", "999999999", "999999999-1"])
def test_what_names_nobody_is_left_alone(mark: str) -> None:
    with sleeper(**{MARK: mark}) as process:
        kill_orphans()
        assert process.poll() is None
