"""`install` and `uninstall` where no service manager runs, and with launchd's program scripted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from codebutler.cli.service import check_not_running, service_for, wait_for_start
from codebutler.config.paths import Home
from codebutler.domain.errors import CodeButlerError, LockHeldError
from codebutler.platform.macos import Launchd
from codebutler.platform.system import ProgramResult, ServiceReport
from codebutler.supervisor.supervisor import SupervisorLock
from tests.integration.cli.conftest import Cli
from tests.integration.cli.slack_server import APP_TOKEN, BOT_TOKEN


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of its own."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def script(programs: Path, name: str, text: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{text}\n")
    (programs / name).chmod(0o755)


def test_without_tokens_nothing_is_installed(cli: Cli, programs: Path) -> None:
    script(programs, "systemctl", "exit 0")
    cli.fails("install", code=78, said="codebutler setup")


def test_tokens_of_this_shell_are_not_those_of_a_service(
    cli: Cli, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(programs, "systemctl", "exit 0")
    monkeypatch.setenv("SLACK_BOT_TOKEN", BOT_TOKEN)
    monkeypatch.setenv("SLACK_APP_TOKEN", APP_TOKEN)
    result = cli.fails("install", code=78, said="SLACK_BOT_TOKEN is set in this shell only")
    assert BOT_TOKEN not in result.err


def test_where_there_is_no_systemd_it_says_so(connected: Cli, programs: Path) -> None:
    connected.fails("install", code=1, said="systemd is not available")


def test_without_a_session_nothing_is_written(connected: Cli, programs: Path, tmp_path: Path) -> None:
    script(programs, "systemctl", "echo 'Failed to connect to bus: No medium found' >&2; exit 1")
    connected.fails("install", code=1, said="loginctl enable-linger")
    assert not (tmp_path / ".config").exists()


def test_the_file_can_be_looked_at_first(connected: Cli, programs: Path, tmp_path: Path) -> None:
    script(programs, "systemctl", "exit 1")
    result = connected("install", "--print")
    assert result.code == 0
    assert "Type=notify" in result.out
    assert BOT_TOKEN not in result.out
    assert not (tmp_path / ".config").exists()


def test_the_words_it_had_in_the_beginning_work(connected: Cli, programs: Path) -> None:
    script(programs, "systemctl", "exit 0")
    assert "no service" in connected("--uninstall").out
    connected.fails("--status", code=1, said="codebutler supervise")


def test_a_supervisor_that_is_not_the_service_is_in_the_way(cli: Cli) -> None:
    manager = Launchd(
        service_for(cli.home, {"HOME": "/nowhere"}), {"HOME": "/nowhere"}, lambda _argv: ProgramResult(113)
    )
    check_not_running(cli.home.ensure(), manager)
    with SupervisorLock(cli.home.lock), pytest.raises(LockHeldError, match="already runs"):
        check_not_running(cli.home, manager)


def test_launchd_is_told_in_its_own_words(tmp_path: Path) -> None:
    calls: list[tuple[str, ...]] = []

    def run(argv: Sequence[str]) -> ProgramResult:
        calls.append(tuple(argv[:2]))
        return ProgramResult(0, "state = running\n\tpid = 77\n") if argv[1] == "print" else ProgramResult(0)

    env = {"HOME": str(tmp_path)}
    manager = Launchd(service_for(Home(tmp_path / ".codebutler"), env), env, run)
    assert manager.report() == ServiceReport("absent")
    manager.install()
    assert manager.file == tmp_path / "Library" / "LaunchAgents" / "com.codebutler.plist"
    assert [call[1] for call in calls] == ["bootout", "enable", "bootstrap"]
    assert manager.report() == ServiceReport("running", 77)
    assert manager.uninstall()
    assert not manager.file.exists()
    assert not manager.uninstall()


def test_a_refusal_of_launchd_is_one_line(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    service = service_for(Home(tmp_path / ".codebutler"), env)
    manager = Launchd(service, env, lambda _argv: ProgramResult(5, "", "Input/output error"))
    with pytest.raises(CodeButlerError, match=r"launchctl enable .* failed: Input/output error"):
        manager.install()


def test_a_start_is_waited_for_but_not_for_ever() -> None:
    reports = iter([ServiceReport("starting"), ServiceReport("starting"), ServiceReport("running", 7)])
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    assert wait_for_start(lambda: next(reports), sleep, lambda: now[0]).state == "running"
    assert wait_for_start(lambda: ServiceReport("starting"), sleep, lambda: now[0]).state == "starting"
    assert 20 <= now[0] < 22
