"""Which walls a configuration gets."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from codebutler.config.schema import SandboxSection
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.cgroups import ResourceLimits
from codebutler_worker.sandbox.docker import DEFAULT
from codebutler_worker.sandbox.limits import configured
from codebutler_worker.sandbox.select import select_sandbox


async def test_no_walls_only_when_trusted() -> None:
    assert (await select_sandbox("none", trusted=True)).name == "none"
    with pytest.raises(SandboxUnavailableError, match="trusted"):
        await select_sandbox("none", trusted=False)


def test_a_container_gets_what_the_configuration_says_and_else_its_own_limits() -> None:
    assert configured(SandboxSection(), DEFAULT) == replace(DEFAULT, file_bytes=10 * 2**30)
    spelled = configured(SandboxSection(memory_mb=4096, processes=512), DEFAULT)
    assert (spelled.memory_bytes, spelled.processes, spelled.cpus) == (2**32, 512, 1)
    asked = SandboxSection(memory_mb=2048, processes=0, cpus=4, file_size_gb=1)
    assert configured(asked, DEFAULT) == ResourceLimits(memory_bytes=2**31, cpus=4, file_bytes=2**30)
