from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from codebutler.config.registry import Registry
from codebutler.config.resolve import resolve_repo
from codebutler.platform.files import FileLock
from tests.integration.cli.conftest import Cli

GOLDEN = Path(__file__).parents[2] / "golden" / "store" / "whatsapp.sql"
OLD_CONFIG = {
    "whatsapp": {"groupJID": "1203@g.us", "groupName": "My Repo", "botPrefix": "[BOT]"},
    "claude": {"maxTurns": 7, "timeout": 30, "permissionMode": "acceptEdits"},
    "openai": {"apiKey": "sk-oldsecret"},
}


@pytest.fixture
def old_repo(git_repo: Path) -> Path:
    """A repository as the WhatsApp era's program left it."""
    private = git_repo / ".codebutler"
    private.mkdir()
    (private / "config.json").write_text(json.dumps(OLD_CONFIG))
    with closing(sqlite3.connect(private / "store.db")) as store:
        store.executescript(GOLDEN.read_text())
    return git_repo


def contents(repo: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (repo / ".codebutler").iterdir() if path.is_file()}


def count(store: Path, table: str) -> int:
    with closing(sqlite3.connect(store)) as connection:
        (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert isinstance(rows, int)
    return rows


def test_check_says_what_it_would_do_and_changes_nothing(cli: Cli, old_repo: Path) -> None:
    before = contents(old_repo)

    result = cli("migrate", str(old_repo), "--check", "--json")

    assert result.code == 0
    shown = json.loads(result.out)
    assert [Path(step["file"]).name for step in shown["steps"]] == ["config.json", "store.db"]
    assert all("would be" in step["done"] for step in shown["steps"])
    assert contents(old_repo) == before


def test_config_and_store_are_migrated_with_backups(cli: Cli, old_repo: Path) -> None:
    private = old_repo / ".codebutler"
    old_bytes = (private / "config.json").read_bytes()
    messages = count(private / "store.db", "messages")

    result = cli("migrate", str(old_repo))

    assert result.code == 0, result
    assert json.loads((private / "config.json").read_text()) == {
        "claude": OLD_CONFIG["claude"],
        "openai": OLD_CONFIG["openai"],
    }
    (backup,) = private.glob("config.json.*.bak")
    assert backup.read_bytes() == old_bytes
    assert len(list(private.glob("store.db*.bak"))) == 1
    assert count(private / "store.db", "messages") == messages
    assert "oldsecret" not in result.out + result.err
    assert "give the repository a channel" in result.out
    assert cli("migrate", str(old_repo)).out == "Everything is up to date.\n"


def test_add_repo_migrates_on_the_way(connected: Cli, old_repo: Path) -> None:
    result = connected("add-repo", str(old_repo), "--channel", "C0MINE000")

    assert result.code == 0, result
    assert "migrated" in result.err
    (entry,) = Registry(connected.home).load()
    config = resolve_repo(connected.home, entry, {}).config
    assert config.claude.max_turns == 7
    assert config.claude.permission_mode == "acceptEdits"
    assert config.slack.channel_id == "C0MINE000"


def test_all_means_the_home_and_every_repository(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0
    connected.home.config.write_text(json.dumps(OLD_CONFIG))
    connected.fails("config", code=78, said="run `codebutler migrate`")
    (git_repo / ".codebutler" / "config.json").write_text(json.dumps(OLD_CONFIG))

    result = connected("migrate", "--all", "--json")

    assert result.code == 0
    files = [step["file"] for step in json.loads(result.out)["steps"]]
    assert files == [str(connected.home.config), f"{git_repo}/.codebutler/config.json"]
    assert connected("config").code == 0


def test_migrating_does_not_vouch_for_a_file_nobody_vouched_for(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0
    (git_repo / ".codebutler" / "config.json").write_text(json.dumps(OLD_CONFIG))

    assert connected("migrate", "repo").code == 0

    (entry,) = Registry(connected.home).load()
    resolved = resolve_repo(connected.home, entry, {})
    assert not resolved.trusted
    # Stricter than what holds without it, so that it counts all the same.
    assert resolved.config.claude.permission_mode == "acceptEdits"
    assert resolved.config.claude.max_turns == 7


def test_what_cannot_be_migrated_is_one_line(connected: Cli, git_repo: Path, tmp_path: Path) -> None:
    connected.fails("migrate", str(tmp_path / "absent"), code=1, said="is not a directory")
    connected.fails("migrate", "repo", "--all", code=2, said="cannot be used together")
    private = git_repo / ".codebutler"
    private.mkdir()
    (private / "config.json").write_text("{")
    connected.fails("migrate", str(git_repo), code=78, said="malformed JSON")
    (private / "config.json").unlink()
    (private / "store.db").write_bytes(b"this is no database" * 100)
    connected.fails("migrate", str(git_repo), code=1, said="store.db")


def test_a_store_that_a_worker_has_open_is_not_migrated(connected: Cli, old_repo: Path) -> None:
    before = contents(old_repo)
    with FileLock(old_repo / ".codebutler" / "store.lock", "the worker"):
        connected.fails("migrate", str(old_repo), code=1, said="worker or another migration uses it: stop")
    assert contents(old_repo)["store.db"] == before["store.db"]


def test_a_repository_that_is_gone_is_told(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0
    shutil.rmtree(git_repo)

    connected.fails("migrate", "--all", code=1, said="no longer exists")
