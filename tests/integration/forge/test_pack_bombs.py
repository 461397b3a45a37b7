"""An agent's pack, small on disk, whose objects unfold to more than the machine has: git on the host does not unfold
it."""

from __future__ import annotations

from tests.integration.forge.kit import Desk, git
from tests.integration.forge.test_attacks import TOPIC, answered, walled_worker
from tests.packs import unfolding_commit
from tests.programs import require

LARGE_BYTES = 5 * 2**28


async def test_a_pack_that_unfolds_to_gigabytes_is_refused(desk: Desk) -> None:
    require("bwrap")
    git(desk.repo, "checkout", "-qb", TOPIC)
    before = desk.commit()
    git(desk.repo, "update-ref", f"refs/heads/{TOPIC}", unfolding_commit(desk.repo, LARGE_BYTES, before))
    async with walled_worker(desk.settings()) as parent:
        assert "too large to be pushed from here" in await answered(parent)
        assert desk.branches == {"main"}
        git(desk.repo, "update-ref", f"refs/heads/{TOPIC}", before)
        assert (await answered(parent, ref="100.9")).startswith("⬆️")
    assert desk.at(TOPIC) == before
