"""The supervisor as a service of a real ``systemd --user``.

| case | what happens |
|---|---|
| S01 | `install` writes a unit without a fault, starts it, and somebody is answered; again, it replaces itself |
| S02 | the main process is killed: started again, and it answers |
| S03 | the main process hangs: the watchdog has it killed and started again, and it answers |
| S04 | `uninstall` ends it in order; nothing is left |
| S05 | a configuration that cannot be used: not started again and again; told by `install` |
| S06 | `restart` replaces it in place: the same process for systemd, which neither restarts nor kills it |
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.house import House, house
from tests.e2e.test_matrix import QUICK
from tests.programs import require
from tests.systemd import SystemdUser, systemd_user

pytestmark = pytest.mark.root


@asynccontextmanager
async def serviced(tmp_path: Path) -> AsyncIterator[tuple[House, SystemdUser]]:
    async with systemd_user(tmp_path) as manager, house(tmp_path, "sample") as built:
        built.prefix = manager.prefix
        built.env |= manager.env
        yield built, manager


def unit_of(tmp_path: Path) -> Path:
    """The one unit that was installed."""
    [unit] = (tmp_path / ".config" / "systemd" / "user").glob("codebutler-*.service")
    return unit


async def answered(built: House, channel: str) -> None:
    marker = await built.say(channel, "!ping")
    await built.answer(channel, marker, "pong")


async def signal_main(manager: SystemdUser, unit: str, number: int) -> None:
    await manager.run("systemctl", "--user", "kill", "--kill-whom=main", f"--signal={number}", unit)


async def test_s01_to_s04_a_service_lives_through_kills_and_hangs(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with serviced(tmp_path) as (built, manager):
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        assert "The service is running." in await built.run("install")
        unit = unit_of(tmp_path)
        assert await manager.run("systemd-analyze", "--user", "verify", str(unit)) == ""
        assert "xox" not in unit.read_text()
        root = await built.say(channel, "list the files")
        await built.answer(channel, root, "README.md")
        assert "Slack connected" in await manager.show(unit.name, "StatusText")

        first = await manager.show(unit.name, "MainPID")
        await signal_main(manager, unit.name, signal.SIGKILL)
        await manager.until(unit.name, "NRestarts", "1")
        await answered(built, channel)
        assert await manager.show(unit.name, "MainPID") != first

        quick = unit.parent / f"{unit.name}.d"
        quick.mkdir()
        (quick / "quick.conf").write_text("[Service]\nWatchdogSec=4\n")
        assert "The service is running." in await built.run("install")
        await manager.until(unit.name, "NRestarts", "0")
        await signal_main(manager, unit.name, signal.SIGSTOP)
        await manager.until(unit.name, "NRestarts", "1", "2")
        await answered(built, channel)

        assert "removed" in await built.run("uninstall")
        assert not unit.exists()
        assert "stopped" in (built.home / "logs" / "codebutler.log").read_text().splitlines()[-1]
        assert "no service" in await built.run("uninstall")


async def test_s05_a_faulty_configuration_is_not_started_again_and_again(tmp_path: Path) -> None:
    async with serviced(tmp_path) as (built, manager):
        await built.run("install")
        unit = unit_of(tmp_path)
        # Good enough to be installed, and then somebody breaks it.
        (built.home / "config.json").write_text('{"slack": 3}')
        await signal_main(manager, unit.name, signal.SIGKILL)
        await manager.until(unit.name, "ActiveState", "failed")
        assert await manager.show(unit.name, "ExecMainStatus") == "78"
        assert await manager.show(unit.name, "NRestarts") == "1"
        assert "slack" in await built.run("install", check=False)


async def test_s06_a_restart_in_place_is_none_for_systemd(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with serviced(tmp_path) as (built, manager):
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.run("install")
        unit = unit_of(tmp_path)
        before = await manager.show(unit.name, "MainPID")
        assert f"Restarted: pid {before}," in await built.run("restart")
        await manager.until(unit.name, "ActiveState", "active")
        await answered(built, channel)
        assert await manager.show(unit.name, "MainPID") == before
        assert await manager.show(unit.name, "NRestarts") == "0"
        await built.run("uninstall")
