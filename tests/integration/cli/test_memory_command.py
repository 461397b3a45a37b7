from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.registry import Registry, RepoEntry
from codebutler.domain.clock import SystemClock
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import REPO_SCOPE, FactRow, MemoryLineRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from tests.integration.cli.conftest import Cli


@pytest.fixture
def repo(cli: Cli, tmp_path: Path) -> Path:
    directory = tmp_path / "repo"
    (directory / ".codebutler").mkdir(parents=True)
    cli.home.ensure()
    Registry(cli.home).update(lambda _: (RepoEntry(name="repo", path=str(directory)),))
    return directory


def test_facts_are_shown_with_numbers_and_forgotten_by_them(cli: Cli, repo: Path) -> None:
    assert "Nothing is remembered" in cli("memory", "show").out
    file = repo / ".codebutler" / "memory.md"
    file.write_text("# Ours\n- Login uses bcrypt\n- Time is \x1b[31mUTC\n")

    assert re.sub(" +", " ", cli("memory", "show").out) == (
        "N AGE FACT THREAD\n1 Login uses bcrypt\n2 Time is ?[31mUTC\n"
    )
    assert json.loads(cli("memory", "show", "repo", "--json").out)[0] == {
        "number": 1,
        "fact": "Login uses bcrypt",
        "name": None,
        "at": None,
        "link": None,
    }

    assert "Forgotten: Login uses bcrypt" in cli("memory", "forget", "1").out
    assert file.read_text() == "# Ours\n- Time is \x1b[31mUTC\n"
    cli.fails("memory", "forget", "2", code=1, said="there is no fact 2")
    cli.fails("memory", "show", "nobody", code=1, said="nobody")


async def test_ages_and_threads_are_told_also_while_a_worker_has_the_store(cli: Cli, repo: Path) -> None:
    (repo / ".codebutler" / "memory.md").write_text("- Login uses bcrypt\n- By hand\n")
    now = datetime.now(UTC)
    learned = MemoryLineRow(
        line="Login uses bcrypt",
        channel_id="C1",
        thread="100.5",
        added_at=(now - timedelta(days=3, hours=1)).isoformat(),
    )
    kept = FactRow(
        scope=REPO_SCOPE,
        key="deploy",
        value="to staging first",
        channel_id="C1",
        thread="200.5",
        updated_at=(now - timedelta(minutes=5, seconds=1)).isoformat(),
    )
    mine = replace(kept, scope="U1", key="name", value="Ada")
    async with open_store(repo / ".codebutler" / "store.db", SystemClock()) as store:

        def keep(uow: UnitOfWork) -> None:
            uow.memory_lines.add(learned, known="replace")
            uow.facts.add(kept, known="replace")
            uow.facts.add(mine, known="replace")

        await store.run(keep)
        while_open = cli("memory", "show").out
    shown = cli("memory", "show").out
    assert shown == while_open
    _, first, second, third = (re.split(r" {2,}", line) for line in shown.splitlines())
    assert first == ["1", "3d", "Login uses bcrypt", "https://slack.com/archives/C1/p1005"]
    assert second[0] == "2"
    assert "By hand" in second
    assert third == ["3", "5m", "deploy: to staging first", "https://slack.com/archives/C1/p2005"]
    assert "Ada" not in shown
    told = json.loads(cli("memory", "show", "--json").out)[2]
    assert (told["name"], told["link"]) == ("deploy", "https://slack.com/archives/C1/p2005")
    cli.fails("memory", "forget", "3", code=1, said="!memory forget 3")
    cli.fails("memory", "forget", "4", code=1, said="there is no fact 4")


@pytest.mark.parametrize("plant", ["link", "nonsense", "fifo", "empty"])
def test_facts_are_shown_whatever_stands_for_the_store(
    cli: Cli, repo: Path, tmp_path: Path, plant: str
) -> None:
    (repo / ".codebutler" / "memory.md").write_text("- Login uses bcrypt\n")
    store = repo / ".codebutler" / "store.db"
    match plant:
        case "link":
            store.symlink_to(tmp_path / "elsewhere")
        case "nonsense":
            store.write_bytes(b"no database at all" * 1000)
        case "fifo":
            os.mkfifo(store)
        case _:
            store.touch()
    shown = cli("memory", "show")
    assert "Login uses bcrypt" in shown.out
    assert ("cannot tell where facts come from" in shown.err) is (plant != "empty")


def test_what_was_planted_is_not_followed(cli: Cli, repo: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("- mine\n")
    (repo / ".codebutler" / "memory.md").symlink_to(secret)
    cli.fails("memory", "show", code=78, said="symbolic link")
    cli.fails("memory", "forget", "1", code=78, said="symbolic link")
    assert secret.read_text() == "- mine\n"


def test_it_wants_to_know_which_repository(cli: Cli) -> None:
    cli.fails("memory", "show", code=1, said="which repository?")
    assert cli("memory", "forget").code == 2
    assert cli("memory", "forget", "0").code == 2
