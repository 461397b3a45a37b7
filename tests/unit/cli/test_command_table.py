from __future__ import annotations

import re
import subprocess
import sys

import pytest

from codebutler.__main__ import main
from codebutler.cli.app import COMMANDS, SECTIONS, LazyCommand, Row
from codebutler.cli.output import printable


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_every_command_can_be_loaded_and_explains_itself(
    row: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    assert LazyCommand(row).load().name == row.name
    assert main([row.name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: codebutler {row.name}")
    assert main([row.name, "-h"]) == 0
    assert capsys.readouterr().out == out
    # Nothing of a programming language, nothing that drives a terminal.
    assert re.findall(r"<\w|\{\w+\}|list\[|\x1b", out) == []


def test_every_command_of_a_group_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["skills", "create"], ["memory", "forget"], ["sandbox", "build"], ["config", "set"]):
        assert main([*words, "-h"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"Usage: codebutler {' '.join(words)} [OPTIONS]")
        assert re.findall(r"<\w|\{\w+\}|list\[", out) == []


def test_the_help_is_grouped_and_names_every_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-h"]) == 0
    out = capsys.readouterr().out
    names = re.findall(r"^  ([a-z][a-z-]*)  +[A-Z]", out, re.MULTILINE)
    assert sorted(names) == sorted(row.name for row in COMMANDS)
    assert [line for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")] == [
        "Options:",
        *(f"{heading}:" for heading, _ in SECTIONS),
    ]


def test_the_help_imports_no_command() -> None:
    script = (
        "import sys; from codebutler.__main__ import main; main(['-h']); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert loaded & {"asyncio", "msgspec", "aiohttp", "rich", "codebutler.cli.config"} == set()


def test_the_table_holds_each_name_once() -> None:
    names = [row.name for row in COMMANDS]

    assert len(set(names)) == len(names)
    assert all(row.help.endswith(".") and "\n" not in row.help for row in COMMANDS)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("codebutler 0.")


def test_without_a_command_there_is_help_and_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "add-repo" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["statis"], "unknown command 'statis', did you mean `codebutler status`?\n"),
        (["costs"], "did you mean `codebutler ledger`?\n"),
        (["start"], "did you mean `codebutler supervise`?\n"),
        (["skills", "creat"], "did you mean `codebutler skills create`?\n"),
        (["qqq"], "unknown command 'qqq': see `codebutler --help`\n"),
        (["--nope"], "No such option: --nope"),
        (["trust"], "codebutler trust --help"),
        (["logs", "-n", "many"], "'--lines': expected a whole number: see `codebutler logs --help`"),
        (
            ["workspace", "--port", "65536"],
            "'--port': expected at most 65535: see `codebutler workspace --help`",
        ),
        (["demo", "--port", "-1"], "'--port': expected at least 0: see `codebutler demo --help`"),
        (["setup", "--telegram-user", "bob"], "bob is not a Telegram number such as 123456789"),
        (["setup", "--telegram-user", "bob"], "run `codebutler setup` at a terminal"),
        (["demo", "--agent", "bogus"], "'--agent': 'bogus' is not one of 'claude'"),
        (["skills"], "Missing command: see `codebutler skills --help`"),
        (["memory"], "Missing command: see `codebutler memory --help`"),
        (["sandbox"], "Missing command: see `codebutler sandbox --help`"),
    ],
)
def test_wrong_usage_is_one_line(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert err.count("\n") == 1
    assert out == ""


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: codebutler [OPTIONS] COMMAND")
    assert main(["help", "skills", "create"]) == 0
    assert capsys.readouterr().out.startswith("Usage: codebutler skills create")


def test_what_is_printed_cannot_drive_the_terminal() -> None:
    assert printable("a\x1b]0;x\x07b\tc\u202e é") == "a?]0;x?b\tc? é"
