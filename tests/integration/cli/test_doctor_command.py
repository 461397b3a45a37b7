"""`doctor` over a scripted Slack, without a supervisor: what it says of one fault at a time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from codebutler.cli.doctor import CLEAR
from tests.integration.cli.conftest import Cli
from tests.integration.cli.slack_server import BOT_TOKEN, CHANNELS, SlackServer
from tests.integration.cli.terminal import in_terminal
from tests.ordinary import give_away


@pytest.fixture
def repo(connected: Cli, tmp_path: Path) -> Path:
    """A registered repository whose agent needs nothing."""
    path = tmp_path / "mine"
    path.mkdir()
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    give_away(path)
    config = json.loads(connected.home.config.read_text())
    config |= {"agent": {"default": "rehearsal"}, "sandbox": {"mode": "none"}}
    connected.home.config.write_text(json.dumps(config))
    assert connected("add-repo", str(path), "--channel", "C0MINE000").code == 0
    return path


def examined(cli: Cli) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """The exit code, and the findings by area and subject."""
    result = cli("doctor", "--json")
    told = json.loads(result.out)
    assert BOT_TOKEN not in result.out + result.err
    assert told["ok"] == (result.code == 0)
    return result.code, {(each["area"], each["subject"]): each for each in told["findings"]}


def test_all_is_well_and_what_is_not_perfect_is_a_warning(connected: Cli, repo: Path) -> None:
    code, found = examined(connected)
    assert code == 0
    assert found["slack", "bot token"]["text"].startswith("Testers as U0BOT")
    assert found["channels", "mine"]["level"] == "ok"
    assert found["agents", "rehearsal (default)"]["level"] == "ok"
    assert found["sandbox", "none"]["level"] == "warn"
    assert found["supervisor", "process"]["level"] == "warn"
    assert found["slack", "scopes"]["level"] == "warn"
    assert found["disk", str(connected.home.root)]["text"].endswith("free")


def test_it_can_be_read_by_people_too(connected: Cli, repo: Path) -> None:
    result = connected("doctor")
    lines = result.out.splitlines()
    assert result.code == 0
    # What is in order is one line; what is not stands below its area.
    assert [line[:4] for line in lines].count("ok  ") == 1
    assert lines[lines.index("Supervisor") + 1].startswith(
        "  warn  process: not running: `codebutler supervise`"
    )
    assert lines[-1].endswith("0 failed")
    assert "\x1b" not in result.out
    whole = connected("doctor", "--all").out.splitlines()
    assert {line[:6] for line in whole[:-1]} >= {"  ok  ", "  warn"}
    assert len(whole) > len(lines) + 8
    assert whole[-1] == lines[-1]


def test_who_waits_in_a_terminal_sees_it_go_on(connected: Cli, repo: Path) -> None:
    shown = in_terminal(["doctor"], [], connected.home.root, {"TERM": "xterm", "NO_COLOR": ""})
    assert "Checking …" in shown
    assert "done, last: slack …" in shown
    # What goes on is overwritten by what was found, in colours.
    lines = [line.rpartition(CLEAR)[2].rstrip("\r") for line in shown.rstrip().split("\n")]
    assert sum(line.startswith("\x1b[32mok\x1b[0m    ") for line in lines) == 1
    assert lines[-1].endswith("0 failed")


@pytest.mark.parametrize(
    ("method", "error", "subject"),
    [
        ("auth.test", "account_inactive", ("slack", "bot token")),
        ("apps.connections.open", "not_allowed_token_type", ("slack", "app token")),
        ("conversations.info", "channel_not_found", ("channels", "mine")),
    ],
)
def test_what_slack_refuses_fails(
    connected: Cli, repo: Path, slack: SlackServer, method: str, error: str, subject: tuple[str, str]
) -> None:
    slack.failures[method] = error
    code, found = examined(connected)
    assert code == 1
    assert found[subject]["level"] == "FAIL"
    assert ":" in found[subject]["text"]
    # What has nothing to do with it is looked at all the same.
    assert found["agents", "rehearsal (default)"]["level"] == "ok"


def test_a_channel_without_the_app_in_it_fails(
    connected: Cli, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHANNELS, "C0MINE000", {"id": "C0MINE000", "name": "mine", "is_member": False})
    code, found = examined(connected)
    assert code == 1
    assert "/invite" in found["channels", "mine"]["text"]


def test_a_changed_configuration_and_a_damaged_store_are_told(connected: Cli, repo: Path) -> None:
    (repo / ".codebutler" / "store.db").write_bytes(b"not a database" * 100)
    (repo / ".codebutler" / "config.json").write_text('{"sandbox": {"mode": "bwrap"}}')
    code, found = examined(connected)
    assert code == 1
    assert "damaged" in found["store", "mine"]["text"] or "not a database" in found["store", "mine"]["text"]
    assert "codebutler trust mine" in found["repos", "mine"]["text"]


def test_a_damaged_journal_and_a_home_open_to_others_are_told(connected: Cli, repo: Path) -> None:
    connected.home.journal.write_bytes(b"\0" * 4096)
    connected.home.root.chmod(0o755)
    code, found = examined(connected)
    assert code == 1
    assert found["store", "journal"]["level"] == "FAIL"
    assert "chmod 700" in found["home", str(connected.home.root)]["text"]


def test_a_repository_that_is_gone_is_told(connected: Cli, repo: Path, tmp_path: Path) -> None:
    repo.rename(tmp_path / "elsewhere")
    code, found = examined(connected)
    assert code == 1
    assert "remove-repo mine" in found["repos", "mine"]["text"]


def test_before_setup_it_says_where_to_begin(cli: Cli) -> None:
    code, found = examined(cli)
    assert code == 1
    assert "codebutler setup" in next(iter(found.values()))["text"]


def test_a_home_without_a_configuration_is_not_said_to_have_one(cli: Cli) -> None:
    cli.home.ensure()

    _, found = examined(cli)

    assert (
        found["home", "configuration"]["text"]
        == f"{cli.home.config} does not exist yet: all settings have their defaults"
    )


def test_a_configuration_that_cannot_be_used_is_one_line(connected: Cli) -> None:
    connected.home.config.write_text('{"slack": 3}')
    code, found = examined(connected)
    assert code == 1
    assert "slack" in found["home", "configuration"]["text"]


def test_it_says_whether_repositories_can_be_made_from_chat(
    connected: Cli, repo: Path, tmp_path: Path
) -> None:
    def told(**section: Any) -> tuple[str, str]:
        config = json.loads(connected.home.config.read_text()) | {"newRepos": section}
        connected.home.config.write_text(json.dumps(config))
        found = examined(connected)[1].get(("repos", "newRepos"), {"level": "", "text": ""})
        return found["level"], found["text"]

    projects = tmp_path / "projects"
    assert told(root=str(projects)) == ("", "")
    assert told(allow=["*"])[0] == "FAIL"
    assert told(allow=["*"], root=str(projects)) == (
        "FAIL",
        f"`newRepos.root` is {projects}, which is not a directory: create it",
    )
    projects.mkdir()
    give_away(projects)
    assert told(allow=["*"], root=str(projects)) == ("ok", f"`!new` creates repositories in {projects}")
