"""`codebutler repos` and `codebutler remove-repo`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from codebutler.config.registry import Registry
from tests.integration.cli.conftest import Cli
from tests.integration.cli.repos import config_of


def test_repos_lists_what_there_is(connected: Cli, git_repo: Path) -> None:
    assert "add-repo" in connected("repos").out
    assert connected("repos", "--json").out.strip() == "[]"
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0

    assert connected("repos").out.split() == [
        *("NAME", "CHANNEL", "STATE", "PATH"),
        *("repo", "#mine", "trusted", str(git_repo)),
    ]
    shutil.rmtree(git_repo)
    (listed,) = json.loads(connected("repos", "--json").out)
    assert listed == {"name": "repo", "path": str(git_repo), "channel_id": "C0MINE000", "state": "missing"}


def test_a_deleted_repository_can_be_told_and_removed(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0
    shutil.rmtree(git_repo)

    connected.fails("config", "repo", code=78, said="no longer exists")
    assert connected("remove-repo", "repo").code == 0
    connected.fails("remove-repo", "repo", code=1, said="no repository is registered as 'repo'")


def test_removing_leaves_the_files(connected: Cli, git_repo: Path) -> None:
    assert connected("add-repo", str(git_repo), "--channel", "C0MINE000").code == 0

    assert connected("remove-repo", "repo").code == 0

    assert config_of(git_repo).exists()
    assert Registry(connected.home).load() == ()
