from __future__ import annotations

import pytest

from codebutler.__main__ import main
from codebutler.cli.app import COMMANDS, LazyCommand, Row
from codebutler.cli.output import printable


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_every_command_can_be_loaded_and_explains_itself(
    row: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    assert LazyCommand(row).load().name == row.name
    assert main([row.name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"codebutler {row.name}" in out
    assert "--install-completion" not in out


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
        (["statis"], "Did you mean 'status'"),
        (["--nope"], "No such option: --nope"),
        (["trust"], "codebutler trust --help"),
        (["logs", "-n", "many"], "codebutler logs --help"),
        (["workspace", "--port", "65536"], "codebutler workspace --help"),
        (["demo", "--port", "-1"], "codebutler demo --help"),
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


def test_what_is_printed_cannot_drive_the_terminal() -> None:
    assert printable("a\x1b]0;x\x07b\tc\u202e é") == "a?]0;x?b\tc? é"
