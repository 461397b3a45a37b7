"""How a program is found, started and typed into; what it is told; what it may see."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.config.programs import RUN, is_session, program_names, program_of
from codebutler.config.schema import CommandRule, Config
from codebutler.text.envelopes import Envelope, parts_of
from codebutler_worker.agents.running import DEFAULT, instructions
from codebutler_worker.agents.shell.backend import argv, policy_of
from codebutler_worker.agents.shell.run import keys
from codebutler_worker.agents.survey import Surroundings
from codebutler_worker.egress.access import NetworkAccess

OPEN = NetworkAccess()
REPL = CommandRule(prefix="py", binary="python3", args=("-i",), mode="interactive")
HEADLESS = CommandRule(prefix="codex", binary="codex", mode="headless")
AROUND = Surroundings(
    Path("/home/u"), "/usr/bin:/bin", {"ANTHROPIC_API_KEY": "sk-ant-x", "HTTPS_PROXY": "http://proxy"}
)


def test_run_is_always_there_and_may_be_replaced() -> None:
    assert program_of(Config(), "run") is RUN
    other = CommandRule(prefix="run", binary="zsh", args=("-c",))
    assert program_of(Config(commands=(other,)), "run") is other
    assert program_of(Config(), "claude") is None


def test_only_programs_at_a_terminal_count() -> None:
    config = Config(commands=(REPL, HEADLESS))
    assert program_names(config) == {"run", "checks", "py"}
    assert is_session(config, "py")
    assert not is_session(config, "run")
    assert program_of(config, "codex") is None


def test_a_commands_text_is_one_argument_and_a_sessions_is_none() -> None:
    assert argv(RUN, Path("/bin/bash"), "echo 'a b'; ls") == ("/bin/bash", "-c", "echo 'a b'; ls")
    assert argv(REPL, Path("/usr/bin/python3"), "1+1") == ("/usr/bin/python3", "-i")


def test_a_program_sees_no_key_and_nobodys_home() -> None:
    policy = policy_of(AROUND, RUN, Path("/bin/bash"), Path("/srv/repo"), OPEN)
    assert "ANTHROPIC_API_KEY" not in policy.env
    assert policy.env["HTTPS_PROXY"] == "http://proxy"
    assert policy.env["TERM"] == "xterm-256color"
    assert policy.env["GIT_PAGER"] == "cat"
    assert policy.home_paths == ()
    assert policy.own_terminal
    assert "PAGER" not in policy_of(AROUND, REPL, Path("/bin/x"), Path("/srv/repo"), OPEN).env


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("ls", b"ls\r"),
        ("a\nb", b"a\rb\r"),
        ("", b"\r"),
        ("^C", b"\x03"),
        (" ^D ", b"\x04"),
        ("^M", b"\r"),
        ("^[", b"\x1b"),
        ("↑", b"\x1b[A"),
        ("^C please", b"^C please\r"),
        ("für", "für\r".encode()),
    ],
)
def test_what_a_message_types(text: str, typed: bytes) -> None:
    assert keys(text) == typed


def test_the_teaching_describes_the_marks_and_is_none_itself() -> None:
    assert "three less-than signs, the word SLACK" in DEFAULT
    assert [part for part in parts_of(DEFAULT) if isinstance(part, Envelope)] == []


def test_the_teaching_may_be_edited(tmp_path: Path) -> None:
    prompts = tmp_path / ".codebutler" / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "mine.txt").write_text("  Mark what matters.\n")
    assert instructions(tmp_path, "prompts/mine.txt") == "Mark what matters."
    assert instructions(tmp_path, str(prompts / "mine.txt")) == "Mark what matters."
    for wrong in ("", "prompts/none.txt", "../../etc/passwd"):
        assert instructions(tmp_path, wrong) == DEFAULT
    (prompts / "link.txt").symlink_to("/etc/passwd")
    assert instructions(tmp_path, "prompts/link.txt") == DEFAULT
