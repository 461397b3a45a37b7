"""The real programs the tests use: where they are, and how to install what is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

TOOLS = Path(__file__).parent.parent / ".tools" / "node_modules" / ".bin"
CLAUDE_VERSION = "2.1.328"

INSTALL = {
    "claude": f"npm install --prefix .tools @anthropic-ai/claude-code@{CLAUDE_VERSION}",
    "chromium": "apt-get install chromium",
    "bc": "apt-get install bc",
    "bwrap": "apt-get install bubblewrap",
    "espeak-ng": "apt-get install espeak-ng",
    "git": "apt-get install git",
    "systemctl": "apt-get install systemd",
    "systemd-analyze": "apt-get install systemd",
    "unshare": "apt-get install util-linux",
    "nsenter": "apt-get install util-linux",
    "faketime": "apt-get install faketime",
}


def find(program: str) -> Path | None:
    """The program's absolute path, from the checkout's own tools first."""
    found = shutil.which(program, path=f"{TOOLS}{os.pathsep}{os.environ.get('PATH', '')}")
    return Path(found).absolute() if found else None


def require(program: str) -> Path:
    """The program, or a skip with the line that installs it; under CI=true its absence is a failure."""
    if found := find(program):
        return found
    reason = f"{program} is not installed: {INSTALL.get(program, program)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
