"""Kill points end the process that was told to, at the passage that was named, and nobody else."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from codebutler.platform import kill_points
from codebutler.supervisor.forkserver import scrubbed

PROGRAM = """
import os
from codebutler.platform.kill_points import reached, watch
watch("parent", os.environ)
for _ in range(3):
    reached("post.before")
    reached("post.after")
print("lived")
"""


def live(plans: Path | None) -> subprocess.CompletedProcess[str]:
    env = {} if plans is None else {kill_points.VARIABLE: str(plans)}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)


def test_without_the_variable_nothing_is_noted_and_nobody_dies(tmp_path: Path) -> None:
    (tmp_path / "parent.plan").write_text("post.after 1\n")
    assert live(None).stdout == "lived\n"
    assert [file.name for file in tmp_path.iterdir()] == ["parent.plan"]


@pytest.mark.parametrize(("label", "k", "passed"), [("post.before", 1, 1), ("post.after", 2, 4)])
def test_the_process_dies_at_its_kth_passage_and_its_next_life_lives(
    label: str, k: int, passed: int, tmp_path: Path
) -> None:
    (tmp_path / "parent.plan").write_text(f"{label} {k}\n")
    (tmp_path / "worker:other.plan").write_text(f"{label} 1\n")
    assert live(tmp_path).returncode == -signal.SIGKILL
    assert len((tmp_path / "parent.passed").read_text().split()) == passed
    assert live(tmp_path).stdout == "lived\n"
    assert (tmp_path / "worker:other.plan").read_text() == f"{label} 1\n"


def test_workers_are_let_through_to_only_when_the_supervisor_was_started_so() -> None:
    assert scrubbed({kill_points.VARIABLE: "/plans", "SLACK_BOT_TOKEN": "xoxb-1"}).get(kill_points.VARIABLE)
    assert kill_points.VARIABLE not in scrubbed({"SLACK_BOT_TOKEN": "xoxb-1"})
