"""`codebutler upgrade --check`: what it finds, and that it changes nothing and needs no network."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from codebutler.domain.version import VERSION
from codebutler.intake import journal_file
from codebutler_worker.store import tables
from tests.integration.cli.conftest import Cli

GOLDEN = Path(__file__).parents[2] / "golden"


def fill(path: Path, script: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that is a directory: the real pip reads it, and nothing else."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


@pytest.fixture
def older(cli: Cli, git_repo: Path, index: Path) -> Path:
    """A home and a repository as an older version left them; the repository's store."""
    cli.home.ensure()
    private = git_repo / ".codebutler"
    private.mkdir()
    (private / "config.json").write_text('{"slack": {"channelID": "C0SAMPLE"}}')
    entry = {"name": "sample", "path": str(git_repo), "channelID": "C0SAMPLE"}
    cli.home.registry.write_text(json.dumps({"repos": [entry]}))
    fill(cli.home.journal, (GOLDEN / "journal" / "0006.sql").read_text())
    return fill(private / "store.db", (GOLDEN / "store" / "0013.sql").read_text())


def checked(cli: Cli, *, code: int = 0) -> dict[str, Any]:
    result = cli("upgrade", "--check", "--json")
    assert result.code == code, result
    found: dict[str, Any] = json.loads(result.out)
    return found


def levels(found: dict[str, Any], area: str) -> dict[str, str]:
    return {each["subject"]: each["level"] for each in found["findings"] if each["area"] == area}


def test_what_the_next_start_migrates_is_listed_and_left_alone(cli: Cli, older: Path) -> None:
    before = {path: path.read_bytes() for path in (older, cli.home.journal)}
    found = checked(cli)
    assert found["ready"]
    assert (found["installed"], found["running"], found["turns"]) == (VERSION, "", {})
    moved = {
        Path(each["file"]).name: (each["from_revision"], each["to_revision"], each["size_bytes"])
        for each in found["migrations"]
    }
    assert moved == {
        "journal.db": ("0006", journal_file.HEAD, cli.home.journal.stat().st_size),
        "store.db": ("0013", tables.HEAD, older.stat().st_size),
    }
    assert {path: path.read_bytes() for path in before} == before
    assert [path.name for path in older.parent.iterdir() if path.suffix == ".bak"] == []
    shown = cli("upgrade", "--check")
    assert shown.code == 0
    assert f"sample: 0013 to {tables.HEAD}, migrated at the next start, after a backup" in shown.out


def test_a_file_of_a_newer_version_stands_in_the_way(cli: Cli, older: Path) -> None:
    fill(older, "UPDATE alembic_version SET version_num = '0999'; PRAGMA user_version = 9000000")
    found = checked(cli, code=1)
    assert not found["ready"]
    assert levels(found, "store") == {"journal": "ok", "sample": "FAIL"}
    told = next(each["text"] for each in found["findings"] if each["subject"] == "sample")
    assert "written by a newer CodeButler (9.0.0, revision 0999): update this one" in told


def test_no_room_for_the_backups_stands_in_the_way(
    cli: Cli, older: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(older.parent)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage._replace(free=2**20))
    found = checked(cli, code=1)
    assert set(levels(found, "disk").values()) == {"FAIL"}


def test_a_configuration_of_the_whatsapp_era_stands_in_the_way(cli: Cli, older: Path) -> None:
    (older.parent / "config.json").write_text('{"whatsapp": {"groupJID": "1203@g.us"}}')
    found = checked(cli, code=1)
    assert levels(found, "configuration") == {"sample": "FAIL"}
    assert "codebutler migrate" in str(found["findings"])


@pytest.mark.parametrize(
    ("releases", "newest", "level"),
    [(("0.0.9", "99.1.0"), "99.1.0", "warn"), ((VERSION,), VERSION, "ok"), ((), "", "warn")],
)
def test_the_newest_release_is_what_pip_finds(
    cli: Cli, index: Path, releases: tuple[str, ...], newest: str, level: str
) -> None:
    for release in releases:
        (index / f"codebutler-{release}-py3-none-any.whl").touch()
    found = checked(cli)
    assert (found["newest"], levels(found, "version")) == (newest, {"newest release": level})


def test_without_the_option_it_says_how_to_upgrade(cli: Cli) -> None:
    result = cli("upgrade")
    assert result.code == 0
    assert "pipx upgrade codebutler" in result.out
    assert "codebutler restart" in result.out
    cli.fails("upgrade", "--json", code=2, said="--json requires --check")
