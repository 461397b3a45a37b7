"""What large files took is given back, whichever thread handled them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from codebutler.supervisor.forkserver import scrubbed

FILES = """
import os, sys, threading

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def handle(passed, leave):
    for _ in range(3):
        content = bytes(bytearray(20_000_000))
        answer = content + b"."
        small.append(bytes(50_000))
        del content, answer
    passed.wait()
    leave.wait()

if sys.argv[1:] == ["told"]:
    from codebutler.platform.processes import return_large_blocks
    return_large_blocks()
small, passed, leave = [], threading.Barrier(5), threading.Event()
before = resident()
threads = [threading.Thread(target=handle, args=(passed, leave)) for _ in range(4)]
for thread in threads:
    thread.start()
passed.wait()
print((resident() - before) // 10**6)
leave.set()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc that keeps it")
@pytest.mark.parametrize(("env", "arguments"), [(scrubbed({}), ()), ({}, ("told",))])
def test_it_is_not_kept(env: dict[str, str], arguments: tuple[str, ...]) -> None:
    kept = subprocess.run(
        [sys.executable, "-c", FILES, *arguments], env=env, capture_output=True, text=True, check=True
    )
    assert int(kept.stdout) < 20
