"""`codebutler add-repo` that is refused changes nothing: no file, no mode, no registry entry, no channel."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from codebutler.config.registering import register
from codebutler.config.registry import Registry, RepoEntry
from codebutler.domain.errors import RegistryError
from codebutler.domain.refs import ConversationRef
from tests.integration.cli.conftest import Cli
from tests.integration.cli.repos import git
from tests.integration.cli.slack_server import SlackServer
from tests.ordinary import give_away

READING = {"auth.test", "conversations.info", "conversations.list", "users.info"}
MINE = ("--channel", "C0MINE000")


def tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below ``root``: kind and mode, owner, content."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.lstat().st_uid,
            str(path.readlink()).encode()
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else b"",
        )
        for path in root.rglob("*")
    }


def private(repo: Path) -> Path:
    directory = repo / ".codebutler"
    directory.mkdir()
    return directory


def in_its_place(repo: Path) -> None:
    (repo / ".codebutler").write_text("a file")


def link(repo: Path) -> None:
    (repo / ".codebutler").symlink_to(repo.parent)


def malformed(repo: Path) -> None:
    (private(repo) / "config.json").write_text("{")


def unknown_key(repo: Path) -> None:
    (private(repo) / "config.json").write_text('{"agents": {}}')


def odd_ignore(repo: Path) -> None:
    (private(repo) / ".gitignore").mkdir()


def odd_jobs(repo: Path) -> None:
    (private(repo) / "jobs.yaml").symlink_to("/etc/hostname")


def foreign_store(repo: Path) -> None:
    with closing(sqlite3.connect(private(repo) / "store.db")) as connection:
        connection.execute("CREATE TABLE somebody_elses (id)")


def new_store(repo: Path) -> None:
    with closing(sqlite3.connect(private(repo) / "store.db")) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
        connection.commit()


def damaged_store(repo: Path) -> None:
    (private(repo) / "store.db").write_bytes(b"not a database" * 100)


def tracked_store(repo: Path) -> None:
    (private(repo) / "store.db").touch()
    git(repo, "add", "-f", ".codebutler/store.db")


def legacy_config_and_foreign_store(repo: Path) -> None:
    foreign_store(repo)
    (repo / ".codebutler" / "config.json").write_text('{"whatsapp": {"groupJID": "1@g.us"}}')


Options = tuple[str, ...]


@pytest.mark.parametrize(
    ("prepare", "options"),
    [
        (in_its_place, MINE),
        (link, MINE),
        (malformed, MINE),
        (unknown_key, MINE),
        (odd_ignore, MINE),
        (odd_jobs, MINE),
        (foreign_store, MINE),
        (new_store, MINE),
        (damaged_store, MINE),
        (tracked_store, MINE),
        (legacy_config_and_foreign_store, MINE),
        (None, ()),
        (None, (*MINE, "--create-channel", "new")),
        (None, (*MINE, "--name", "not a name")),
        (None, (*MINE, "--agent", "nobody")),
        (None, ("--channel", "C0NOTHERE")),
        (None, ("--channel", "nowhere")),
        (None, ("--channel", "C0OLD0000")),
        (None, ("--channel", "G0PRIVATE")),
    ],
)
def test_what_cannot_be_registered_changes_nothing(
    connected: Cli,
    slack: SlackServer,
    git_repo: Path,
    prepare: Callable[[Path], None] | None,
    options: Options,
) -> None:
    if prepare is not None:
        prepare(git_repo)
        give_away(git_repo)
    refused(connected, slack, git_repo, *options)


@pytest.mark.parametrize(
    ("method", "error", "options"),
    [
        ("conversations.create", "name_taken", ("--create-channel", "mine")),
        ("conversations.create", "restricted_action", ("--create-channel", "mine")),
        ("conversations.create", "missing_scope", ("--create-channel", "mine")),
        ("conversations.info", "token_revoked", MINE),
        ("conversations.list", "missing_scope", ("--channel", "mine")),
        ("conversations.join", "missing_scope", ("--channel", "C0GENERAL")),
    ],
)
def test_what_slack_refuses_changes_nothing(
    connected: Cli, slack: SlackServer, git_repo: Path, method: str, error: str, options: Options
) -> None:
    slack.failures[method] = error
    refused(connected, slack, git_repo, *options, asked={method})


def test_what_is_taken_changes_nothing(connected: Cli, slack: SlackServer, git_repo: Path) -> None:
    other = git_repo.parent / "other"
    shutil.copytree(git_repo, other)
    give_away(other)
    assert connected("add-repo", str(git_repo), "--channel", "C0GENERAL").code == 0
    slack.calls.clear()
    refused(connected, slack, git_repo, *MINE)
    refused(connected, slack, other, *MINE, "--name", "Repo")
    # Its app is not in the channel, as far as Slack tells: it must not be joined for nothing.
    refused(connected, slack, other, "--channel", "C0GENERAL")


@pytest.mark.parametrize("where", ["nothing", "bare", "plain", "file"])
def test_what_is_no_repository_stays_as_it_is(
    connected: Cli, slack: SlackServer, tmp_path: Path, where: str
) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "file").touch()
    git(tmp_path, "init", "-q", "--bare", "bare")
    refused(connected, slack, tmp_path / where, *MINE)


def test_before_setup_no_home_is_made(cli: Cli, slack: SlackServer, git_repo: Path) -> None:
    refused(cli, slack, git_repo, *MINE)
    assert not cli.home.root.exists()


def test_a_home_within_the_repository_is_left_alone(
    connected: Cli, slack: SlackServer, git_repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEBUTLER_HOME", str(git_repo / "home"))
    refused(connected, slack, git_repo, *MINE)


def test_a_damaged_registry_or_configuration_stays_as_it_is(
    connected: Cli, slack: SlackServer, git_repo: Path
) -> None:
    config = connected.home.config.read_text()
    connected.home.config.write_text(json.dumps({**json.loads(config), "agents": {}}))
    refused(connected, slack, git_repo, *MINE)
    connected.home.config.write_text(config)
    connected.home.registry.write_text("{")
    refused(connected, slack, git_repo, *MINE)


def test_a_path_that_is_not_utf_8_changes_nothing(connected: Cli, slack: SlackServer, git_repo: Path) -> None:
    refused(connected, slack, git_repo.rename(git_repo.parent / "caf\udce9"), *MINE)


def test_the_second_of_two_at_once_changes_nothing(
    connected: Cli, slack: SlackServer, git_repo: Path
) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0GENERAL").code == 0
    before = tree(git_repo)
    second = RepoEntry(name="repo", path=str(git_repo), channel_id=ConversationRef("C0MINE000"))
    with pytest.raises(RegistryError, match="already registered"):
        register(Registry(connected.home), second, {}, "mine")  # checked before the first was registered
    assert tree(git_repo) == before


def refused(
    cli: Cli, slack: SlackServer, repo: Path, *options: str, asked: frozenset[str] | set[str] = frozenset()
) -> None:
    before, root = tree(repo.parent), repo.parent
    assert cli("add-repo", str(repo), *options).code != 0
    assert tree(root) == before
    assert set(slack.methods()) <= READING | asked
