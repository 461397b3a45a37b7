"""What the native agent's commands reach: the hosts that are named, as other agents' do, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from codebutler_worker.agents.native.model import SystemMessage
from codebutler_worker.egress.policy import NetworkPolicy
from codebutler_worker.tools.programs import SandboxPrograms, tool_policy
from codebutler_worker.tools.reading import READ_FILES
from codebutler_worker.tools.running import bash
from codebutler_worker.tools.shell import ShellTerminal
from codebutler_worker.tools.tool import Context
from tests.integration.egress.outside import Egress, Internet, egress, internet
from tests.integration.native.conftest import PATH, Studio, says
from tests.integration.tools.conftest import call
from tests.programs import require
from tests.turns import end
from tests.walls import walled

__all__ = ["egress", "internet"]

RUN = "run_terminal_command"


def network_policy(egress: Egress, *hosts: str) -> NetworkPolicy:
    require("curl")
    return NetworkPolicy("hosts", hosts, sandboxed=True, dialer=egress.dialer)


async def test_its_terminal_reaches_the_hosts_that_are_named(
    studio: Studio, egress: Egress, internet: Internet
) -> None:
    studio.sandbox, studio.network_policy = walled(), network_policy(egress, "docs.example.org")
    events = await studio.run(
        "fetch it",
        says(
            "", (RUN, {"command": "curl -sS http://docs.example.org/one; curl -sS http://other.example.org/"})
        ),
        says("", (RUN, {"command": "curl -sS http://docs.example.org/two"}), call_id="b"),
        says("", ("read_files", {"paths": ["README.md"]}), call_id="c"),
        says("Fetched."),
    )
    first, second, _ = studio.told()
    assert "GET /one 0 bytes" in first
    assert "does not let this agent reach other.example.org:80" in first
    assert "GET /two 0 bytes" in second
    assert [request.path for request in internet.seen] == ["/one", "/two"]
    # People learn what was refused, and the model knew what it has.
    assert end(events).text.startswith("Fetched.")
    assert "blocked access to `other.example.org`" in end(events).text
    orders = studio.model.asked[0].messages[0]
    assert isinstance(orders, SystemMessage)
    assert "it reaches docs.example.org." in orders.content


async def test_without_a_named_host_there_is_no_network(studio: Studio) -> None:
    studio.sandbox = walled()
    command = (
        "cat /proc/net/dev | grep -c :; echo $PIP_RETRIES $npm_config_fetch_retries; env | grep -ci proxy="
    )
    events = await studio.run("look", says("", (RUN, {"command": command})), says("None."))
    assert studio.told()[0].startswith("1\n1 1\n0\n")
    assert end(events).text == "None."
    orders = studio.model.asked[0].messages[0]
    assert isinstance(orders, SystemMessage)
    assert "This sandbox has no network" in orders.content


@pytest.fixture
async def strict(studio: Studio, egress: Egress) -> AsyncIterator[Context]:
    policy = tool_policy(studio.repo, studio.home, PATH, {}, "C1:1.0")
    terminal = ShellTerminal(walled(), policy, studio.clock)
    yield Context(
        workdir=studio.repo,
        turn_id="t1",
        conversation="C1:1.0",
        programs=SandboxPrograms(walled(), policy, network_policy(egress, "docs.example.org")),
        terminal=terminal,
    )
    await terminal.close()


async def test_so_does_a_single_program_but_none_that_only_looks_at_files(
    strict: Context, internet: Internet
) -> None:
    result = await call(
        bash(("curl",)), strict, json.dumps({"command": "curl -sS http://docs.example.org/three"})
    )
    assert "GET /three 0 bytes" in result.text
    assert (await call(READ_FILES, strict, json.dumps({"paths": ["README.md"]}))).ok
    assert [request.path for request in internet.seen] == ["/three"]
