"""What the commands about repositories leave behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

from codebutler.config.registry import Registry, RepoEntry
from tests.integration.cli.conftest import Cli


def only_entry(cli: Cli) -> RepoEntry:
    (entry,) = Registry(cli.home).load()
    return entry


def config_of(repo: Path) -> Path:
    return repo / ".codebutler" / "config.json"


def git(repo: Path, *args: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", *identity, *args], cwd=repo, check=True, capture_output=True)
