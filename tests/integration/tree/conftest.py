"""What the tests of worktrees begin with: a sandbox of each kind, and a repository with one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.store.opening import prepare_state_dir
from tests.integration.tree.test_tree import git
from tests.walls import as_it_is, walled

Committed = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    """Makes the repository that the worker serves, with these files in its first commit."""

    def make(files: Mapping[str, str]) -> Path:
        path = tmp_path / "repo"
        path.mkdir()
        git(path, "init", "-q", "-b", "main")
        for name, text in files.items():
            (path / name).write_text(text)
        git(path, "add", ".")
        git(path, "commit", "-qm", "begin")
        prepare_state_dir(path)
        return path

    return make


@pytest.fixture(params=["bwrap", "none"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return walled() if request.param == "bwrap" else as_it_is()
