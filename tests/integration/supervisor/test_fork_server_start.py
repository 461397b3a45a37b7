"""How the fork server starts: nothing of the current directory and nothing of our script runs in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from codebutler.protocol.messages import PROTOCOL_VERSION

SCRIPT = """
import asyncio, os, signal
print("the script runs", flush=True)
from codebutler.supervisor.forkserver import ForkServer

async def main():
    server = ForkServer("tests.workers.scripted:main", ["tests.workers.scripted"])
    server.start()
    link = await server.spawn("shop")
    async for message in link.messages():
        print(message, flush=True)
        break
    link.kill(signal.SIGKILL)
    print("code", await link.wait_dead(), flush=True)
    link.close()

asyncio.run(main())
"""


def test_a_hostile_current_directory_is_not_imported_and_the_script_runs_once(tmp_path: Path) -> None:
    hostile, programs = tmp_path / "repo", tmp_path / "bin"
    hostile.mkdir()
    programs.mkdir()
    for name in ("multiprocessing", "selectors", "struct", "msgspec", "codebutler_worker", "tests"):
        (hostile / f"{name}.py").write_text("import os\nopen(os.environ['HOME'] + '/taken-over', 'w')\n")
    script = programs / "codebutler"
    script.write_text(SCRIPT)
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, str(script)],
        cwd=hostile,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not (tmp_path / "taken-over").exists()
    assert ran.stdout.count("the script runs") == 1, ran.stderr
    assert f"Hello(version={PROTOCOL_VERSION}," in ran.stdout, ran.stderr
    assert "code -9" in ran.stdout


def test_it_starts_where_the_temporary_directory_has_no_room_for_a_socket(tmp_path: Path) -> None:
    (deep := tmp_path / ("deep" * 20)).mkdir()
    script = tmp_path / "codebutler"
    script.write_text(SCRIPT)
    root = Path(__file__).parents[3]
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(root), "TMPDIR": str(deep)}
    ran = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert "code -9" in ran.stdout, ran.stderr
