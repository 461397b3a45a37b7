"""What macOS's programs print, read as recorded; and its property list, word for word."""

from __future__ import annotations

import os
import plistlib
import socket
import struct
from pathlib import Path

import pytest

from codebutler.cli.service import service_for
from codebutler.config.paths import Home
from codebutler.config.schema import Config, RepoSettings, SandboxSection
from codebutler.domain.refs import NO_CHANNEL
from codebutler.operations.doctor import UNTRIED_PAGE, check_system
from codebutler.platform.linux import Linux
from codebutler.platform.macos import PEER, MacOS, listed_access, rows, working_directories
from codebutler.platform.system import ProgramResult, ServiceReport
from codebutler_worker.agents.claude.backend import login_wanted

LISTING = """\
    1     0 Ss    13616 ??       Mon Nov 23 08:01:12 2026     /sbin/launchd
  501     1 S     48032 ??       Mon Nov 23 08:02:40 2026     /Applications/My App.app/Contents/MacOS/My App
  640   501 S+     2112 ttys003  Mon Nov 23 09:15:00 2026     -zsh
  641   640 S+   131072 ttys003  Mon Nov 23 09:15:07 2026     /Users/ana/.local/bin/kimi-code
  700   640 Z+        0 ttys003  Mon Nov 23 09:16:00 2026     (git)
  701   641 S+     1024 ttys003  Sun Nov  1 09:16:00 2026     git
"""
OPENED = "p641\nfcwd\nn/Users/ana/code/my shop\n"


def programs(directory: Path, **texts: str) -> str:
    """A PATH with programs that print what was recorded."""
    for name, text in texts.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    return str(directory)


def printing(text: str) -> str:
    return f"printf '%s' '{text}'"


def test_processes_as_ps_lists_them() -> None:
    table = rows(LISTING)
    assert sorted(table) == [1, 501, 640, 641, 701]
    assert table[641].entry == (640, "MonNov230915072026")
    assert table[701].started == "SunNov10916002026"
    assert (table[641].memory_bytes, table[641].terminal, table[641].program) == (2**27, True, "kimi-code")
    assert (table[501].terminal, table[501].program) == (False, "My App")
    assert rows("ps: illegal option\n\n") == {}


def test_what_is_asked_of_the_table(tmp_path: Path) -> None:
    system = MacOS(programs(tmp_path, ps=printing(LISTING), lsof=printing(OPENED)))
    assert system.children(640) == [641]
    use = system.use_of([640, 641, 9])
    assert {pid: each.programs for pid, each in use.items()} == {640: 2, 641: 1}
    assert system.at_terminal("kimi-code") == [Path("/Users/ana/code/my shop")]
    assert system.at_terminal("claude") == []
    assert working_directories("p1\nfcwd\nn/\np2\nfcwd\n") == [Path("/")]


def test_without_the_programs_nothing_is_found(tmp_path: Path) -> None:
    system = MacOS(str(tmp_path))
    assert system.seen() == {}
    assert system.at_terminal("kimi-code") == []
    assert not system.keychain_has("anything")


@pytest.mark.parametrize(
    ("line", "listed"),
    [
        ("drwxr-x---+ 12 ana  staff  384 Nov 23 09:00 /Users/ana\n 0: group:everyone deny delete\n", True),
        ("drwxr-xr-x@ 12 ana  staff  384 Nov 23 09:00 /Users/ana+\n", False),
        ("", False),
    ],
)
def test_an_access_list_as_ls_shows_it(line: str, *, listed: bool) -> None:
    assert listed_access(line) is listed


class Peer:
    """A socket that answers as macOS does."""

    def __init__(self, version: int, uid: int) -> None:
        self._answer = struct.pack("=IIhxx16I", version, uid, 1, 20, *[0] * 15)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (0, 1, 76)
        return self._answer


def test_the_peer_of_a_socket() -> None:
    assert PEER.size == 76
    assert MacOS().peer_uid(Peer(0, 501)) == 501  # type: ignore[arg-type]
    with pytest.raises(OSError, match=os.strerror(71)):
        MacOS().peer_uid(Peer(1, 501))  # type: ignore[arg-type]
    with socket.socket(socket.AF_UNIX) as sock, pytest.raises(OSError, match="not"):
        MacOS().peer_uid(sock)


def settings(mode: str, **env: str) -> RepoSettings:
    config = Config(sandbox=SandboxSection(mode=mode))  # type: ignore[arg-type]
    return RepoSettings(name="shop", path="/src/shop", channel_id=NO_CHANNEL, config=config, agent_env=env)


def test_a_login_in_the_keychain_is_no_use_to_an_agent_in_a_sandbox(tmp_path: Path) -> None:
    asked = f'echo "$@" > {tmp_path}/asked; echo "keychain: \\"login.keychain-db\\""'
    with_login = MacOS(programs(tmp_path, security=asked))
    told = login_wanted(settings("auto"), tmp_path, with_login)
    assert "in the keychain" in told
    assert "`claude setup-token`" in told
    assert "CLAUDE_CODE_OAUTH_TOKEN" in told
    assert (tmp_path / "asked").read_text() == "find-generic-password -s Claude Code-credentials\n"
    assert login_wanted(settings("none"), tmp_path, with_login) == ""
    assert login_wanted(settings("auto", CLAUDE_CODE_OAUTH_TOKEN="t"), tmp_path, with_login) == ""


def test_without_any_login_both_systems_say_how_to_log_in(tmp_path: Path) -> None:
    without = MacOS(programs(tmp_path, security="exit 44"))
    for system in (without, Linux()):
        assert login_wanted(settings("auto"), tmp_path, system).startswith("not logged in")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / ".credentials.json").write_text("{}")
    assert login_wanted(settings("auto"), tmp_path, without) == ""


def test_doctor_says_what_never_ran_there() -> None:
    [finding] = check_system(MacOS())
    assert finding.level == "warn"
    assert finding.subject == "macOS"
    assert all(each.part in finding.text for each in MacOS.untried)
    assert (Path(__file__).parents[3] / UNTRIED_PAGE).exists()
    assert list(check_system(Linux())) == []


def test_macos_tries_seatbelt_first() -> None:
    assert MacOS.sandboxes == ("seatbelt", "docker")
    assert Linux.sandboxes == ("bwrap", "docker")


PRINTED = """\
gui/501/com.codebutler = {
\tactive count = 1
\tpath = /Users/ana/Library/LaunchAgents/com.codebutler.plist
\ttype = LaunchAgent
\tstate = running

\tprogram = /usr/bin/python3
\tdefault environment = {
\t\tPATH => /usr/bin:/bin:/usr/sbin:/sbin
\t}

\tminimum runtime = 10
\texit timeout = 45
\truns = 1
\tpid = 4242
\timmediate reason = speculative
\tlast exit code = (never exited)
}
"""


@pytest.mark.parametrize(
    ("printed", "report"),
    [
        (ProgramResult(0, PRINTED), ServiceReport("running", 4242)),
        (
            ProgramResult(
                0,
                PRINTED.replace("state = running", "state = spawn scheduled").replace("\tpid = 4242\n", ""),
            ),
            ServiceReport("starting"),
        ),
        (
            ProgramResult(
                0,
                PRINTED.replace("\tpid = 4242\n", "")
                .replace("state = running", "state = not running")
                .replace("(never exited)", "78: EX_CONFIG"),
            ),
            ServiceReport("failed", 0, "exit code 78: EX_CONFIG"),
        ),
        (ProgramResult(113, "", "Could not find service"), ServiceReport("stopped", 0, "not loaded")),
    ],
)
def test_the_service_as_launchctl_prints_it(
    tmp_path: Path, printed: ProgramResult, report: ServiceReport
) -> None:
    env = {"HOME": str(tmp_path)}
    manager, text = MacOS().manager(
        service_for(Home(tmp_path / ".codebutler"), env), env, lambda _argv: printed
    )
    assert plistlib.loads(text.encode())["Label"] == "com.codebutler"
    manager.file.parent.mkdir(parents=True)
    manager.file.write_text(text)
    assert manager.report() == report
