from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from codebutler.__main__ import main
from codebutler.config.paths import Home
from codebutler.config.resolve import VARIABLES
from tests.integration.cli.slack_server import APP_TOKEN, BOT_TOKEN, SlackServer


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class Cli:
    """The command line, run in this process against a home of its own."""

    def __init__(self, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys

    def __call__(self, *args: str) -> Result:
        self._capsys.readouterr()
        code = main(args)
        out, err = self._capsys.readouterr()
        return Result(code, out, err)

    def fails(self, *args: str, code: int, said: str) -> Result:
        """Run, and expect that code and one line on stderr that contains ``said``."""
        result = self(*args)
        assert result.code == code, result
        assert result.err.count("\n") == 1, result.err
        assert said in result.err
        assert "Traceback" not in result.err
        return result


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CODEBUTLER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", os.environ["PATH"])
    return Cli(Home(tmp_path / "home"), capsys)


@pytest.fixture
def slack() -> Iterator[SlackServer]:
    with SlackServer() as server:
        yield server


@pytest.fixture
def connected(cli: Cli, slack: SlackServer) -> Cli:
    """A command line after ``setup``."""
    args = ["--bot-token", BOT_TOKEN, "--app-token", APP_TOKEN, "--allow-user", "U0123ABC"]
    result = cli("setup", *args, "--api-url", slack.url)
    assert result.code == 0, result
    slack.calls.clear()
    return cli
