"""What is in `deploy/` fits the product: nothing in it refers to what is not there, and no secret is in it."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from codebutler.cli.app import COMMANDS
from codebutler.cluster.server import MINIMUM
from codebutler.domain.errors import EXIT_CONFIGURATION
from codebutler.platform.linux import unit_text
from tests.programs import NATS_SERVER_VERSION, require
from tests.unit.service.test_unit_text import section, service

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
OURS = [unit for unit in UNITS if "codebutler" in unit.name]


def settings(unit: Path) -> configparser.SectionProxy:
    return section(unit.read_text(), "Service")


def test_the_units_that_are_there() -> None:
    assert [unit.name for unit in UNITS] == [
        "codebutler-gateway.service", "codebutler-host@.service", "nats-server.service"
    ]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    """Its program is replaced by one that is here, and its user by ourselves: systemd checks both."""
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
    copy = tmp_path / unit.name.replace("@", "@root")
    copy.write_text(re.sub(r"^User=.*$", "User=root", text, flags=re.MULTILINE))
    done = subprocess.run(
        [require("systemd-analyze"), "verify", "--man=no", "--recursive-errors=no", str(copy)],
        capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "SYSTEMD_LOG_LEVEL": "warning"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert unit.name not in done.stderr
    assert copy.name not in done.stderr, done.stderr


@pytest.mark.parametrize("unit", OURS, ids=lambda unit: unit.name)
def test_it_starts_a_command_of_ours_and_not_again_for_its_configuration(unit: Path) -> None:
    program, command = settings(unit)["ExecStart"].split()
    assert program.endswith("/codebutler")
    assert command in {row.name for row in COMMANDS}
    assert settings(unit)["RestartPreventExitStatus"] == str(EXIT_CONFIGURATION)
    assert settings(unit)["Restart"] == "always"


def test_a_host_treats_agents_as_the_user_service_does() -> None:
    host, user = (
        settings(DEPLOY / "systemd" / "codebutler-host@.service"),
        section(unit_text(service()), "Service"),
    )
    same = (
        "KillMode",
        "OOMPolicy",
        "Delegate",
        "LimitNOFILE",
        "LimitCORE",
        "UMask",
        "NoNewPrivileges",
        "TimeoutStopSec",
    )
    assert {name: host[name] for name in same} == {name: user[name] for name in same}


@pytest.mark.parametrize("name", ["codebutler-gateway.service", "nats-server.service"])
def test_what_runs_no_agent_reaches_nothing_of_the_machine(name: str) -> None:
    unit = settings(DEPLOY / "systemd" / name)
    assert unit["ProtectSystem"] == "strict"
    assert unit["ProtectHome"] == "yes"
    assert unit["CapabilityBoundingSet"] == ""
    assert unit["User"] not in ("", "root")


def composed() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def test_the_compose_file_has_three_servers_a_gateway_and_a_stand_by() -> None:
    services = composed()["services"]
    assert sorted(services) == ["gateway", "nats1", "nats2", "nats3", "standby"]
    for name in ("gateway", "standby"):
        assert services[name]["image"] == "codebutler"
        assert services[name]["command"] == ["gateway"]
    folders = [volume for each in services.values() for volume in each["volumes"]]
    assert len(set(folders)) == len(services), "two of them would share a disk"


def test_its_servers_are_of_the_version_that_is_tested() -> None:
    images = {each["image"] for name, each in composed()["services"].items() if name.startswith("nats")}
    assert images == {f"nats:{NATS_SERVER_VERSION}"}
    assert tuple(map(int, NATS_SERVER_VERSION.split("."))) >= MINIMUM


def test_no_container_is_root_or_may_become_it() -> None:
    docker = (DEPLOY / "Dockerfile").read_text()
    assert "USER 1000:1000" in docker
    for name, each in composed()["services"].items():
        assert each["cap_drop"] == ["ALL"], name
        assert each["security_opt"] == ["no-new-privileges:true"], name
        assert not name.startswith("nats") or each["user"] == "1000:1000"


def test_no_file_has_a_secret_or_a_variable_that_nobody_explains() -> None:
    for path in [path for path in DEPLOY.rglob("*") if path.is_file()]:
        assert not re.search(r"(?i)(password|secret|token|seed)\s*[:=]\s*\S", path.read_text()), path
    text = (DEPLOY / "compose.yaml").read_text()
    for name in re.findall(r"\$\{(\w+)", text):
        assert re.search(rf"\$\{{{name}:\?[a-z]", text), "without it compose says what it is for"
