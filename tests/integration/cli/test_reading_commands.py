from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from codebutler.chat.telegram.updates import menu
from codebutler.config.registry import Registry, RepoEntry
from codebutler.observe.audit import AuditLog
from codebutler.observe.chain import AuditAct
from tests.clock import ManualClock
from tests.integration.cli.conftest import Cli
from tests.integration.cli.slack_server import BOT_TOKEN
from tests.programs import require

HEAVY = ("aiohttp", "alembic", "asyncio", "httpx", "msgspec", "rich", "slack_sdk", "sqlalchemy", "websockets")
LOG = """\
2026-02-14 15:04:05 INF  supervising 2 repositories
2026-02-14 15:04:06 MSG  [one] hello
2026-02-14 15:04:07 RSP  [two] hi
2026-02-14 15:04:08 ERR  [one] no \x1b[31mway
"""


def register(cli: Cli, *names: str) -> None:
    cli.home.ensure()
    Registry(cli.home).update(lambda _: tuple(RepoEntry(name=name, path=f"/{name}") for name in names))


def test_config_shows_values_sources_and_no_secret(connected: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_LEVEL", "debug")

    lines = connected("config").out.splitlines()

    assert 'logs.level = "debug"   # environment LOG_LEVEL' in lines
    assert 'agent.scope = "thread"   # default' in lines
    assert f'slack.allowedUsers = ["U0123ABC"]   # {connected.home.config}' in lines
    assert f'slack.botToken = "********"   # {connected.home.config}' in lines
    assert any(line.startswith("commands.run = {") for line in lines)
    assert BOT_TOKEN not in "".join(lines)


def test_config_of_a_repository_as_json(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0
    config = git_repo / ".codebutler" / "config.json"
    config.write_text('{"sandbox": {"mode": "none"}, "claude": {"maxTurns": 2}}')

    result = connected("config", "repo", "--json")

    shown = json.loads(result.out)
    assert shown["config"]["claude"]["maxTurns"] == 2
    assert shown["config"]["sandbox"]["mode"] == "auto"
    assert shown["config"]["slack"]["channelID"] == "C0MINE000"
    assert shown["sources"]["claude.maxTurns"] == str(config)
    assert shown["trusted"] is False
    assert "sandbox.mode" in shown["notes"][0]
    assert "warning" in result.err
    assert BOT_TOKEN not in result.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "malformed JSON"),
        (b'{"x": 1}', "x: unknown key"),
        (b'{"claude": "\xff"}', "not valid UTF-8"),
        (b'{"slack": {"botToken": "xapp-1-A-SECRET"}}', "slack.botToken: expected a bot token"),
        (b'{"whatsapp": {}}', "run `codebutler migrate`"),
    ],
)
def test_a_bad_file_is_one_line_with_its_name(cli: Cli, content: bytes, said: str) -> None:
    cli.home.ensure()
    cli.home.config.write_bytes(content)

    result = cli.fails("config", code=78, said=said)

    assert str(cli.home.config) in result.err
    assert "SECRET" not in result.err


def test_a_bad_registry_is_one_line_with_its_name(cli: Cli) -> None:
    cli.home.ensure()
    cli.home.registry.write_text('{"repos": [{"name": 3}]}')

    cli.fails("repos", code=78, said=f"{cli.home.registry}: repos[0].name: expected text, got a whole number")


def test_logs_shows_the_end_of_one_repositorys_lines(cli: Cli) -> None:
    register(cli, "one", "two")
    cli.home.log_file.write_text(LOG)

    assert cli("logs", "-n", "2").out.splitlines() == [
        "2026-02-14 15:04:07 RSP  [two] hi",
        "2026-02-14 15:04:08 ERR  [one] no ?[31mway",
    ]
    assert cli("logs", "one").out.splitlines() == [
        "2026-02-14 15:04:06 MSG  [one] hello",
        "2026-02-14 15:04:08 ERR  [one] no ?[31mway",
    ]
    assert json.loads(cli("logs", "two", "--json").out) == [
        {"time": "2026-02-14 15:04:07", "tag": "RSP", "repo": "two", "text": "hi"}
    ]
    assert cli("logs", "-n", "0").out == ""
    assert cli("logs", "-n", "9" * 20).out.count("\n") == 4


def test_logs_of_the_only_repository_include_lines_without_a_name(cli: Cli) -> None:
    register(cli, "one")
    cli.home.log_file.write_text("2026-02-14 15:04:05 MSG  hello\n")

    assert "hello" in cli("logs", "one").out


def test_logs_without_a_log_or_of_nobody_is_one_line(cli: Cli) -> None:
    cli.fails("logs", code=1, said="no log yet")
    cli.fails("logs", "nobody", code=1, said="no repository is registered as 'nobody'")


def test_logs_that_wait_for_a_log_say_so(cli: Cli) -> None:
    cli.home.ensure()
    process = subprocess.Popen(
        [sys.executable, "-m", "codebutler", "logs", "-f"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "CODEBUTLER_HOME": str(cli.home.root)},
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert "waiting for `codebutler supervise`" in process.stderr.readline()
        cli.home.log_file.write_text("first\n")
        assert process.stdout.readline() == "first\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_logs_follow_what_is_added_through_rotation(cli: Cli) -> None:
    cli.home.ensure()
    cli.home.log_file.write_text("first\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "codebutler", "logs", "-f"],
        stdout=subprocess.PIPE,
        env={**os.environ, "CODEBUTLER_HOME": str(cli.home.root)},
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "first\n"
        with cli.home.log_file.open("a") as log:
            log.write("second\n")
        assert process.stdout.readline() == "second\n"
        cli.home.log_file.rename(cli.home.logs / "codebutler.log.1")
        cli.home.log_file.write_text("third\n")
        assert process.stdout.readline() == "third\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_audit_shows_the_last_lines_and_finds_a_change(cli: Cli) -> None:
    said = cli("audit")
    assert (said.code, "no audit log" in said.err) == (1, True)
    cli.home.ensure()
    with AuditLog(cli.home.audit, ManualClock(), str) as audit:
        for text in ("make test", "rm -r build"):
            audit.append(
                AuditAct(kind="run", user="U1", channel="C1", text=text, decision="done", exit_code=0)
            )
    assert "rm -r build" in cli("audit", "-n", "1").out
    assert "make test" not in cli("audit", "-n", "1").out
    assert [row["text"] for row in json.loads(cli("audit", "--json").out)] == ["make test", "rm -r build"]
    assert cli("audit", "verify").out == "Audit log verified.\n"
    cli.home.audit.write_bytes(cli.home.audit.read_bytes().replace(b"make test", b"make wish"))
    said = cli("audit", "verify")
    assert (said.code, "line 2 does not match" in said.err) == (1, True)
    assert cli("audit", "dance").code == 2


def test_manifest_is_json_and_its_link_a_url(cli: Cli) -> None:
    assert json.loads(cli("manifest").out)["settings"]["socket_mode_enabled"] is True
    assert cli("manifest").out == cli("manifest", "slack").out
    assert cli("manifest", "--link").out.startswith("https://api.slack.com/apps?new_app=1")


def test_manifest_tells_what_to_send_to_botfather(cli: Cli) -> None:
    told = cli("manifest", "telegram").out
    assert told.index("/newbot") < told.index("codebutler setup") < told.index("codebutler add-repo")
    # In the form that BotFather takes, within its limits.
    listed = re.findall(r"^([a-z0-9_]{1,32}) - (\S.{0,255})$", told, re.M)
    assert dict(listed) == {each["command"]: each["description"] for each in menu()}
    assert cli("manifest", "Telegram", "--link").out == "https://t.me/BotFather\n"
    cli.fails("manifest", "carrier-pigeon", code=2, said="choose Slack or Telegram")


@pytest.mark.parametrize(
    ("words", "is_set_up"),
    [(("setup", "--bot-token", "xoxb-1", "--app-token", "xapp-1"), False), (("supervise",), True)],
)
def test_a_read_only_disk_is_one_line(tmp_path: Path, words: tuple[str, ...], is_set_up: bool) -> None:
    home = tmp_path / "home"
    if is_set_up:
        (home / "logs").mkdir(0o700, parents=True)
        home.chmod(0o700)
        (home / "config.json").write_text('{"slack": {"botToken": "xoxb-1", "appToken": "xapp-1"}}')
        (home / "config.json").chmod(0o600)
    walls = (require("bwrap"), "--ro-bind", "/", "/", "--dev", "/dev", "--setenv", "CODEBUTLER_HOME", home)
    program = (sys.executable, "-m", "codebutler")
    result = subprocess.run([*walls, *program, *words], capture_output=True, text=True)

    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "the disk is read-only: make it writable or choose another CODEBUTLER_HOME" in result.stderr


def test_help_loads_nothing_heavy() -> None:
    # How quick that makes it is measured: `python -m bench start`.
    program = (
        "import sys\nfrom codebutler.__main__ import main\n"
        f"code = main(['--help'])\nheavy = [m for m in {HEAVY!r} if m in sys.modules]\n"
        "sys.exit(repr(heavy) if heavy else code)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [("repos >&-", 0), ("config --json <&- >&- 2>&-", 0), ("config nobody 2>&-", 1), ("no 2>&-", 2)],
)
def test_closed_standard_files_change_no_exit_code(cli: Cli, words: str, code: int) -> None:
    shell = ("sh", "-c", f"{sys.executable} -m codebutler {words}")
    result = subprocess.run(shell, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (code, "")


def test_a_home_of_nobody_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.fails("add-repo", "~nobody-here/x", code=1, said="there is no such home directory")
    monkeypatch.setenv("CODEBUTLER_HOME", "~nobody-here/x")
    cli.fails("repos", code=1, said="there is no such home directory")
