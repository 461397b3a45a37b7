"""What earlier releases left is served by this one, as after an upgrade.

| case | what happens |
|---|---|
| V01 | the first start migrates it, after backups; what was open is asked about, old conversations are found |
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.house import house
from tests.programs import require
from tests.releases import CHANNEL, releases, unpacked


@pytest.mark.parametrize("version", releases())
async def test_v01_a_home_of_an_earlier_release_is_served(tmp_path: Path, version: str) -> None:
    require("bwrap")
    left = unpacked(version, tmp_path / "left")
    async with house(tmp_path, CHANNEL) as built:
        # The tokens are this workspace's; all else is as it was left.
        config = json.loads((left.home / "config.json").read_text())
        section = json.loads((built.home / "config.json").read_text())["slack"]
        (left.home / "config.json").write_text(json.dumps({**config, "slack": section}))
        built.home, built.env = left.home, {**built.env, "CODEBUTLER_HOME": str(left.home)}
        built.repositories.append(left.repo)
        assert built.channel_id(CHANNEL) == left.channel
        checked = json.loads(await built.run("upgrade", "--check", "--json"))
        assert checked["ready"]
        await built.supervise()
        # This workspace has never seen its threads: what is posted there is refused, and told in the log.
        await built.until(
            "the question", lambda: "interrupted: 1 run; each thread is asked" in built.log() or None
        )
        ts = await built.say(left.channel, "list the files")
        await built.answer(left.channel, ts, "README.md")
        found = await built.say(left.channel, "!find sample")
        await built.answer(left.channel, found, "read README.md")
        jobs = await built.say(left.channel, "!jobs")
        await built.answer(left.channel, jobs, "nightly")
        backups = [*left.home.glob("*.bak"), *(left.repo / ".codebutler").glob("*.bak")]
        assert len(backups) == len(checked["migrations"])
        assert "verified" in (await built.run("audit", "verify")).lower()
