"""`codebutler cluster nats-config`: a file for one person's eyes, which is never written over."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.commands import output_of
from tests.e2e.house import command


async def test_it_writes_a_configuration_once(tmp_path: Path) -> None:
    path = tmp_path / "nats.conf"
    arguments = command("cluster", "nats-config", "laptop", "tower", "--output", str(path))
    await output_of(*arguments, env=os.environ)
    assert path.stat().st_mode & 0o777 == 0o600
    config = json.loads(path.read_text())
    users = config["authorization"]["users"]
    assert [user["user"] for user in users] == ["gateway", "laptop", "tower"]
    assert len({user["password"] for user in users}) == 3
    assert "File exists" in await output_of(*arguments, env=os.environ, check=False)
    assert json.loads(path.read_text()) == config


async def test_a_name_that_cannot_be_a_hosts_is_refused() -> None:
    said = await output_of(*command("cluster", "nats-config", "gateway"), env=os.environ, check=False)
    assert "cannot be a host's name" in said
