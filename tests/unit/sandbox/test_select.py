"""Which walls a configuration gets."""

from __future__ import annotations

import pytest

from codebutler.config.schema import SandboxMode
from codebutler.errors import SandboxUnavailableError
from codebutler_worker.sandbox.select import select_sandbox


async def test_no_walls_only_when_trusted() -> None:
    assert (await select_sandbox("none", trusted=True)).name == "none"
    with pytest.raises(SandboxUnavailableError, match="trusted"):
        await select_sandbox("none", trusted=False)


@pytest.mark.parametrize("mode", ["docker", "seatbelt"])
async def test_what_is_not_built_yet_is_refused_with_a_way_out(mode: SandboxMode) -> None:
    with pytest.raises(SandboxUnavailableError, match=r"not available yet.*global configuration"):
        await select_sandbox(mode, trusted=True)
