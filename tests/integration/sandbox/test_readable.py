"""``sandbox.readable``: a toolchain in the home can be run, and nothing else of the home is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.schema import SandboxSection
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.sandbox.port import SandboxPolicy
from codebutler_worker.sandbox.select import select_sandbox, toolchains
from tests.containers import attack as in_container
from tests.integration.sandbox.test_walls import attack, home, policy
from tests.ordinary import give_away
from tests.programs import require

__all__ = ["home", "policy"]  # fixtures


@pytest.fixture
def tool(home: Path) -> Path:
    """A program as version managers keep it: behind a link, below a directory of its own."""
    real = home / ".tools" / "versions" / "1" / "tool"
    real.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\necho the tool runs\n")
    real.chmod(0o755)
    (home / ".tools" / "current").symlink_to("versions/1")
    return home / ".tools" / "current" / "tool"


async def test_a_toolchain_runs_and_stays_as_it_is(home: Path, policy: SandboxPolicy, tool: Path) -> None:
    require("bwrap")
    named = SandboxSection(readable=("~/.tools", "~/.not-there"))
    sandbox = await select_sandbox(
        "bwrap", trusted=True, hidden=(home / ".codebutler",), section=named, home=home
    )
    assert isinstance(sandbox, BwrapSandbox)
    (policy.workdir / "venv").symlink_to(tool)
    code, said = await attack(sandbox, policy, f"{tool}; ./venv; ls -A ~")
    assert (code, said) == (0, "the tool runs\nthe tool runs\n.tools\n")
    code, said = await attack(sandbox, policy, f"echo x >> {tool} || touch {tool.parent}/x || rm {tool}")
    assert code != 0
    assert "the tool runs" in tool.read_text()
    assert not (tool.parent / "x").exists()
    without = await select_sandbox("bwrap", trusted=True, home=home)
    assert isinstance(without, BwrapSandbox)
    assert (await attack(without, policy, str(tool)))[0] == 127


@pytest.mark.parametrize(
    "name", ["~/.", "{home}", "{above}", "~/.codebutler", "~/.codebutler/logs", "~/link"]
)
async def test_the_home_and_what_is_codebutlers_own_are_no_toolchain(home: Path, name: str) -> None:
    (home / "link").symlink_to(home)
    named = name.format(home=home, above=home.parent)
    with pytest.raises(SandboxUnavailableError, match=r"^sandbox\.readable: [^\n]*$"):
        toolchains((named,), home, (home / ".codebutler",))


async def test_what_the_agent_writes_is_not_mounted_by_its_links(
    home: Path, policy: SandboxPolicy, tool: Path
) -> None:
    (policy.workdir / "planted").symlink_to(home / ".ssh")
    sandbox = BwrapSandbox(
        program=require("bwrap"), readable=toolchains((str(policy.workdir / "planted"),), home, ())
    )
    code, said = await attack(sandbox, policy, f"cat planted/id_ed25519 {home}/.ssh/id_ed25519")
    assert code != 0
    assert "the secret" not in said


async def test_in_a_container_it_runs_too(
    home: Path, policy: SandboxPolicy, tool: Path, tmp_path: Path, docker_host: str
) -> None:
    give_away(tmp_path)
    named = toolchains(("~/.tools",), home, (home / ".codebutler",))
    sandbox = DockerSandbox(hidden=(home / ".codebutler",), host=docker_host, readable=named)
    inside = replace(policy, network="none", conversation="C1:1.1")
    code, said = await in_container(sandbox, inside, f"{tool}; ls -A ~; touch {tool.parent}/x")
    assert said.startswith("the tool runs\n.tools\n")
    assert "Read-only file system" in said
    assert code != 0
    await sandbox.close()
