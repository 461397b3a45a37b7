"""Which machine serves what: a supervisor its own repositories, a gateway those of hosts, a host what it is given."""

from __future__ import annotations

import json
from pathlib import Path

from codebutler.config.paths import Home
from codebutler.config.registry import Registry, RepoEntry
from codebutler.intake.repos import RepoTable
from codebutler.parent.host import Repositories
from codebutler.text.redact import Redactor
from tests.seam import remote


def home(tmp_path: Path, git_repo: Path, channel: str = "C01") -> Home:
    made = Home(tmp_path / "home").ensure()
    tokens = {"botToken": "xoxb-1", "appToken": "xapp-1"} if channel else {}
    made.config.write_text(json.dumps({"slack": tokens, "agent": {"default": "kimi"}}))
    here = RepoEntry(name="shop", path=str(git_repo), channel_id=channel)
    there = RepoEntry(name="tools", path="laptop:tools", channel_id="C02")
    Registry(made).update(lambda entries: (*entries, here, there) if channel else (*entries, here))
    return made


def test_a_supervisor_leaves_hosts_to_a_gateway(tmp_path: Path, git_repo: Path) -> None:
    table = RepoTable.read(home(tmp_path, git_repo), {})
    assert [each.entry.name for each in table.served] == ["shop"]
    assert [each.problem for each in table.unserved] == [
        "tools: it is on the host laptop: serve it with `codebutler gateway`"
    ]


def test_a_gateway_serves_hosts_alone(tmp_path: Path, git_repo: Path) -> None:
    table = RepoTable.read(home(tmp_path, git_repo), {}, of_hosts=True)
    assert [(each.entry.name, each.entry.host) for each in table.served] == [("tools", "laptop")]
    assert "add-repo HOST:shop" in table.unserved[0].problem


def test_a_host_serves_what_it_is_given_and_has(tmp_path: Path, git_repo: Path) -> None:
    redactor = Redactor(set())
    repositories = Repositories(home(tmp_path, git_repo, channel=""), {}, "laptop", redactor)
    local = repositories.local([remote(), remote("other", "C09")])
    settings = local.served["shop"]
    assert (settings.path, settings.channel_id) == (str(git_repo), "C01")
    assert settings.config.agent.default == "kimi"
    assert list(local.served) == ["shop"]
    assert [row.problem for row in local.missing] == [
        "laptop has no repository with that name: run `codebutler add-repo PATH --name other` there"
    ]


def test_a_host_whose_registry_is_damaged_says_so_of_each(tmp_path: Path, git_repo: Path) -> None:
    made = home(tmp_path, git_repo, channel="")
    made.registry.write_text("{")
    local = Repositories(made, {}, "laptop", Redactor(set())).local([remote()])
    assert local.served == {}
    assert "repos.json" in local.missing[0].problem
