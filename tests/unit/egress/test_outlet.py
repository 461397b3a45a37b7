"""What the configuration makes of the network, behind which walls."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.config.schema import AgentNetwork, CommandNetwork, SandboxSection
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.egress.access import noted
from codebutler_worker.egress.hosts import HostPort
from codebutler_worker.egress.policy import Kind, NetworkPolicy, for_agents, for_commands, for_tools, summary


@pytest.mark.parametrize(
    ("network", "walls", "kind"),
    [
        ("auto", "bwrap", "hosts"),
        ("auto", "docker", "hosts"),
        ("auto", "seatbelt", "open"),
        ("hosts", "bwrap", "hosts"),
        ("open", "bwrap", "open"),
        ("open", "docker", "open"),
        ("hosts", "none", "open"),  # without walls nothing can be kept
        ("auto", "none", "open"),
    ],
)
def test_for_agents(network: AgentNetwork, walls: str, kind: Kind) -> None:
    assert for_agents(SandboxSection(network=network), walls, {}).kind == kind


@pytest.mark.parametrize(
    ("network", "walls", "kind"),
    [
        ("open", "bwrap", "open"),
        ("none", "bwrap", "none"),
        ("hosts", "bwrap", "hosts"),
        ("none", "docker", "none"),
        ("auto", "bwrap", "open"),
        ("auto", "none", "open"),
        ("auto", "docker", "none"),
        ("open", "docker", "open"),
    ],
)
def test_for_commands(network: CommandNetwork, walls: str, kind: Kind) -> None:
    assert for_commands(SandboxSection(command_network=network), walls, {}).kind == kind


def test_in_a_container_what_people_start_reaches_the_named_hosts_only() -> None:
    assert for_commands(SandboxSection(hosts=("pypi.org",)), "docker", {}).kind == "hosts"


@pytest.mark.parametrize(
    ("section", "walls", "kind"),
    [
        (SandboxSection(), "bwrap", "none"),
        (SandboxSection(), "docker", "none"),
        (SandboxSection(), "seatbelt", "none"),
        (SandboxSection(), "none", "open"),
        (SandboxSection(hosts=("pypi.org",)), "bwrap", "hosts"),
        (SandboxSection(hosts=("pypi.org",)), "docker", "hosts"),
        (SandboxSection(hosts=("pypi.org",)), "seatbelt", "none"),
        (SandboxSection(hosts=("pypi.org",), network="open"), "bwrap", "open"),
        (SandboxSection(network="open"), "seatbelt", "open"),
    ],
)
def test_for_the_tools_of_our_own_agent_nothing_is_opened_that_nobody_named(
    section: SandboxSection, walls: str, kind: Kind
) -> None:
    assert for_tools(section, walls, {}).kind == kind


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(SandboxUnavailableError, match=r'sandbox.network "hosts" needs bubblewrap or docker'):
        for_agents(SandboxSection(network="hosts"), "seatbelt", {})
    with pytest.raises(SandboxUnavailableError, match=r"sandbox.commandNetwork"):
        for_commands(SandboxSection(command_network="hosts"), "seatbelt", {})


def test_an_agent_is_told_what_it_reaches_and_whom_to_ask() -> None:
    told = for_agents(SandboxSection(hosts=("pypi.org",)), "bwrap", {}).notice()
    assert "reaches pypi.org." in told
    assert "`sandbox.hosts`" in told
    assert "sandbox.hosts" not in for_agents(SandboxSection(network="open"), "bwrap", {}).notice()
    assert "no network" in for_tools(SandboxSection(), "bwrap", {}).notice()


def test_an_agent_behind_walls_is_told_what_git_cannot_do_there() -> None:
    assert "`git config`" in for_agents(SandboxSection(), "docker", {}).notice()
    assert for_agents(SandboxSection(), "none", {}).notice() == ""


async def test_without_a_proxy_nothing_is_opened(tmp_path: Path) -> None:
    for kind in ("none", "open"):
        async with await NetworkPolicy(kind, sandboxed=kind == "none").open(tmp_path) as access:
            assert (access.network, access.port) == (kind, 0)
            # Where nothing is to be reached nobody waits for it.
            assert ("PIP_RETRIES" in access.env) == (kind == "none")


@pytest.mark.parametrize(
    ("section", "walls", "told"),
    [
        (
            SandboxSection(),
            "bwrap",
            "agents: their model's service and no other host (sandbox.network); your",
        ),
        (
            SandboxSection(hosts=("pypi.org",)),
            "bwrap",
            "service and pypi.org (sandbox.network); your commands: full",
        ),
        (
            SandboxSection(command_network="none"),
            "docker",
            "your commands: none (sandbox.commandNetwork)",
        ),
        (SandboxSection(command_network="hosts"), "bwrap", "your commands: no host"),
        (
            SandboxSection(network="open"),
            "bwrap",
            "agents: full network (sandbox.network)",
        ),
        (SandboxSection(), "none", "agents and commands: full network"),
    ],
)
def test_what_is_in_force_is_told_in_one_line(section: SandboxSection, walls: str, told: str) -> None:
    assert told in summary(section, walls)


@pytest.mark.parametrize(
    ("refused", "note"),
    [
        ((), ""),
        (
            (HostPort("a.example", 443), HostPort("a.example", 80)),
            "access to `a.example`. To allow it, change `sandbox.hosts`._",
        ),
        ((HostPort("10.0.0.5", 5432), HostPort("::1", 443)), "access to `10.0.0.5:5432`, `::1`. "),
        (tuple(HostPort(f"h{n}.example", 443) for n in range(9)), "`h4.example` and 4 more. "),
    ],
)
def test_whoever_reads_the_answer_learns_what_was_refused(refused: tuple[HostPort, ...], note: str) -> None:
    told = noted("Done.", refused)
    assert told.startswith("Done.")
    assert note in told
    assert (told == "Done.") == (not refused)
