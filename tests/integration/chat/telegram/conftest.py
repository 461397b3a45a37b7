from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.telegram.room import Room
from tests.telegram.server import BotServer


@pytest.fixture
async def server() -> AsyncIterator[BotServer]:
    async with BotServer() as made:
        yield made


@pytest.fixture
async def room(server: BotServer, tmp_path: Path) -> AsyncIterator[Room]:
    async with Room(server, tmp_path / "journal.db") as made:
        await made.until(made.connection.connected.is_set)
        yield made
