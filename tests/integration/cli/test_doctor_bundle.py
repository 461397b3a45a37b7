"""`doctor --bundle` against what must not be in it: secrets, people, places and words planted wherever it looks."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from codebutler.protocol.capabilities import AgentResult, Cell, LiveResult, keep_result
from tests.integration.cli.conftest import Cli
from tests.integration.cli.slack_server import APP_TOKEN, BOT_TOKEN
from tests.integration.cli.terminal import in_terminal
from tests.ordinary import give_away

pytestmark = pytest.mark.timeout(400)
NAME = "acme-payroll"
SECRETS = (
    BOT_TOKEN,
    APP_TOKEN,
    "xoxb-111122223333-plantedtoken9",
    "ghp_plantedplantedplanted012345",
    "sk-planted-0123456789abcdefghij",
    "hunter2-planted-password",
    "123456789:AAplantedplantedplantedplantedplante",
)
PEOPLE = (
    "anna.planted@example.org",
    "U0PLANTED",
    "U0123ABC",
    "Anna Planted",
    "Annplanted",
    "4915112345678",
    "771234567",
)
PLACES = (
    NAME,
    "/home/annplanted",
    "C0PLANTED",
    "C0MINE000",
    "build7.acme-planted.example",
    "192.168.77.13",
    "ft:acme-planted-model",
    "plantedvault",
    "plantedprefix",
    "planted_customers",
)
WORDS = ("fire everybody on Friday", "the merger with Globex", "quarterly layoffs")
PLANTED = (*SECRETS, *PEOPLE, *PLACES, *WORDS)
EVERYTHING = " ".join(PLANTED)
BY_HAND = (
    # Sentences of ours, with what is not ours in their holes.
    "{repo}: reads its configuration again",
    "no answer from {secret} within 20 s",
    "{person} is not allowed here: {words}",
    "the session of {place}:{person} cannot be resumed: starting a new one",
    "claude: {words}",
    "worker {place} broke: ValueError('{words} {secret}')",
    "{everything}",
)


@pytest.fixture
def planted(connected: Cli, tmp_path: Path) -> Cli:
    """An installation that is full of it."""
    repo = tmp_path / "annplanted" / NAME
    repo.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    with (repo / ".git" / "config").open("a") as git:
        git.write(f"[user]\n\tname = {PEOPLE[3]}\n\temail = {PEOPLE[0]}\n")
    give_away(repo)
    home = connected.home
    config = json.loads(home.config.read_text())
    config |= {
        "agent": {"default": "rehearsal"},
        "sandbox": {"mode": "none", "hosts": [PLACES[4]], "readable": [PLACES[1]]},
        "kimi": {"apiKey": SECRETS[4], "baseUrl": f"https://user:{SECRETS[5]}@{PLACES[4]}/v1"},
        "native": {"prices": {PLACES[6]: {"input": 1.5, "output": 2}}, "model": PLACES[6]},
        "claude": {"mcp": {PLACES[7]: {"command": PLACES[1], "args": ["--token", SECRETS[3]]}}},
        "commands": [{"prefix": PLACES[8], "binary": PLACES[1], "args": [WORDS[1]], "description": WORDS[0]}],
        "memory": {"review": "ask"},
    }
    config["slack"] |= {"allowedUsers": [PEOPLE[1], PEOPLE[2]]}
    home.config.write_text(json.dumps(config))
    home.env_file.write_text(f"ANTHROPIC_API_KEY={SECRETS[4]}\n")
    assert connected("add-repo", str(repo), "--channel", "C0MINE000", "--name", NAME).code == 0
    _fill_logs(home.log_file)
    _fill_store(repo / ".codebutler" / "store.db")
    _fill_store(home.journal)
    cell = Cell(capability="image", state="no", text=f"it did not see the colour of a picture: {EVERYTHING}")
    row = AgentResult(agent=PLACES[8], repos=(NAME,), version="1.2.3", model=PLACES[6], cells=(cell,))
    keep_result(home, LiveResult(at="2026-03-01T12:00:00+00:00", codebutler="0.1.0", agents=(row,)))
    return connected


def _fill_logs(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    given = {
        "repo": NAME, "secret": SECRETS[2], "person": PEOPLE[1], "place": PLACES[2], "words": WORDS[0],
        "everything": EVERYTHING,
    }  # fmt: skip
    lines = [text.format(**given) for text in BY_HAND]
    lines += [f"{plant}" for plant in PLANTED] + [
        f"something happened to {plant}, 3 times" for plant in PLANTED
    ]
    written = [
        f"2026-03-01 12:00:{at % 60:02} {tag}  {repo}{line}"
        for tag in ("INF", "WRN", "ERR", "MSG", "RSP", "CLD")
        for repo in ("", f"[{NAME}] ")
        for at, line in enumerate(lines)
    ]
    path.write_text(
        "\n".join(
            [*written, EVERYTHING, *(f"2026-03-01 12:00:00 INF  [{NAME}] {line}" for line in lines), ""]
        )
    )


def _fill_store(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as store:
        store.execute(f"CREATE TABLE {PLACES[9]} (text TEXT)")
        store.executemany(f"INSERT INTO {PLACES[9]} VALUES (?)", [(plant,) for plant in PLANTED])
        store.commit()


def read(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as packed:
        return {name: packed.read(name).decode() for name in packed.namelist()}


def test_nothing_that_was_planted_is_in_it(planted: Cli, tmp_path: Path) -> None:
    target = tmp_path / "report.zip"
    result = planted("doctor", "--bundle", "--yes", "--output", str(target))
    assert result.code == 0, result
    files = read(target)
    whole = "\n".join((*files, *files.values()))
    for plant in (*PLANTED, str(tmp_path), str(Path.home())):
        assert plant.lower() not in whole.lower(), plant
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    # What was shown is what was written.
    shown = result.out.replace("\n", "")
    assert all(content.replace("\n", "") in shown for content in files.values())


def test_it_still_says_what_a_bug_report_needs(planted: Cli, tmp_path: Path) -> None:
    target = tmp_path / "report.zip"
    assert planted("doctor", "--bundle", "--yes", "--output", str(target)).code == 0
    files = read(target)
    assert set(files) == {
        "versions.json",
        "doctor.json",
        "agents.json",
        "config.json",
        "counts.json",
        "log.txt",
    }
    assert json.loads(files["versions.json"])["codebutler"]
    found = json.loads(files["doctor.json"])
    texts = [each["text"] for each in found]
    assert any(
        "agents run without a sandbox: run `codebutler config set sandbox.mode auto`" in text
        for text in texts
    )
    config = json.loads(files["config.json"])
    assert config["global"]["sandbox.mode"] == "none"
    assert config["global"]["memory.review"] == "ask"
    assert config["global"]["agent.default"] == "rehearsal"
    assert config["global"]["commands"][0].keys() >= {"prefix", "binary", "args"}
    # One name for one thing, in every file.
    assert config["<repo-1>"]
    assert "<repo-1>" in json.loads(files["counts.json"])
    assert json.loads(files["agents.json"])["agents"][0]["repos"] == ["<repo-1>"]
    assert "[<repo-1>] " in files["log.txt"]
    assert [each for each in found if each["area"] == "repos" and "<repo-1>" in each["subject"]]
    counted = json.loads(files["counts.json"])["<repo-1>"]
    assert len(PLANTED) in counted.values()
    assert "cannot be resumed: starting a new one" in files["log.txt"]
    assert "ValueError(…)" in files["log.txt"]


def test_nothing_is_written_unless_somebody_agrees(planted: Cli, tmp_path: Path) -> None:
    target = tmp_path / "report.zip"
    refused = planted("doctor", "--bundle", "--output", str(target))
    assert (refused.code, target.exists(), "--yes" in refused.err) == (2, False, True)
    args = ["doctor", "--bundle", "--output", str(target)]
    shown = in_terminal(args, ["y"], planted.home.root, {"PAGER": "cat", "TERM": "xterm"})
    assert "===== log.txt" in shown
    assert shown.index("===== versions.json") < shown.index("Write the archive?") < shown.index("Wrote ")
    before = target.read_bytes()
    again = planted("doctor", "--bundle", "--yes", "--output", str(target))
    assert (again.code, "choose another --output" in again.err) == (1, True)
    assert target.read_bytes() == before
