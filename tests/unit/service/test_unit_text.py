"""What is written for systemd and launchd, and what is read from them."""

from __future__ import annotations

import configparser
import plistlib
from pathlib import Path

import pytest

from codebutler.cli.service import service_for
from codebutler.config.paths import Home
from codebutler.platform.linux import quoted, read_report, unit_text
from codebutler.platform.macos import agent_plist, label
from codebutler.platform.system import ServiceReport, ServiceSpec


def service(**changes: object) -> ServiceSpec:
    given: dict[str, object] = {
        "name": "codebutler",
        "argv": ("/opt/my tools/python", "-m", "codebutler", "supervise"),
        "home": Path("/home/ann/100% mine"),
        "environment": {"PATH": "/usr/bin:/home/ann/$HOME/bin"},
    }
    return ServiceSpec(**{**given, **changes})  # type: ignore[arg-type]


def section(text: str, name: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser[name]


def test_the_unit_is_restarted_when_it_fails_or_hangs_but_not_for_its_configuration() -> None:
    unit = section(unit_text(service()), "Service")
    assert unit["Type"] == "notify"
    assert unit["Restart"] == "on-failure"
    assert unit["RestartPreventExitStatus"] == "78"
    assert int(unit["WatchdogSec"]) > 30
    assert unit["KillMode"] == "mixed"
    assert unit["OOMPolicy"] == "continue"
    assert unit["Delegate"] == "yes"
    assert unit["LimitNOFILE"] == "1024:524288"


def test_nothing_in_a_path_is_taken_for_more_than_text() -> None:
    unit = section(unit_text(service()), "Service")
    assert unit["ExecStart"].startswith('"/opt/my tools/python" "-m"')
    assert unit["WorkingDirectory"] == "/home/ann/100%% mine"
    assert unit["Environment"] == '"PATH=/usr/bin:/home/ann/$HOME/bin"'
    assert quoted('a"b\\c%d$e', command=True) == '"a\\"b\\\\c%%d$$e"'
    assert "\n" not in quoted("one\ntwo")


def test_a_sandbox_that_needs_its_setuid_bit_keeps_it() -> None:
    assert "NoNewPrivileges=yes" in unit_text(service())
    assert "NoNewPrivileges" not in unit_text(service(locked_privileges=False))


def test_no_secret_of_the_shell_gets_into_the_file() -> None:
    env = {"HOME": "/home/ann", "PATH": "/bin", "SLACK_BOT_TOKEN": "xoxb-1", "ANTHROPIC_API_KEY": "sk-1"}
    made = service_for(Home(Path("/home/ann/.codebutler")), env)
    assert made.name == "codebutler"
    for text in (unit_text(made), agent_plist(made).decode()):
        assert "xoxb" not in text
        assert "sk-1" not in text


def test_another_home_is_another_service() -> None:
    env = {"HOME": "/home/ann", "PATH": "/bin"}
    first, second = (service_for(Home(Path(path)), env) for path in ("/srv/one", "/srv/two"))
    assert len({first.name, second.name, "codebutler"}) == 3
    assert first.environment["CODEBUTLER_HOME"] == "/srv/one"
    assert label(first).startswith("com.codebutler.")


def test_the_launch_agent_says_the_same() -> None:
    told = plistlib.loads(agent_plist(service()))
    assert told["Label"] == "com.codebutler"
    assert told["ProgramArguments"] == ["/opt/my tools/python", "-m", "codebutler", "supervise"]
    assert told["KeepAlive"] == {"SuccessfulExit": False}
    assert told["WorkingDirectory"] == "/home/ann/100% mine"
    assert told["StandardErrorPath"].endswith("logs/service.log")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ActiveState": "active", "MainPID": "7", "Job": "0"}, ServiceReport("running", 7)),
        ({"ActiveState": "active", "MainPID": "7", "Job": "31"}, ServiceReport("starting", 7)),
        ({"ActiveState": "activating", "MainPID": "7"}, ServiceReport("starting", 7)),
        ({"ActiveState": "deactivating", "MainPID": "7", "Job": "31"}, ServiceReport("starting", 7)),
        ({"ActiveState": "inactive", "MainPID": "0"}, ServiceReport("stopped")),
        (
            {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "78"},
            ServiceReport("failed", 0, "exit-code, exit code 78"),
        ),
    ],
)
def test_what_systemd_tells_of_it(fields: dict[str, str], expected: ServiceReport) -> None:
    assert read_report(fields) == expected
