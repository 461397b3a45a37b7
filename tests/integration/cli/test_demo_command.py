"""`codebutler demo PATH`: what cannot be copied is told by its full path."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("absent", "absent is not a directory: pass a git repository"),
        (".", "is not a git repository: run `git init`"),
    ],
)
def test_what_is_no_repository_is_told_in_full(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)

    result = cli("demo", path, "--no-browser")

    assert result.code == 1
    assert str(tmp_path) in result.err.splitlines()[-1]
    assert said in result.err
