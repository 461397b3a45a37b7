"""What several tests of whole workers are given."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.modelserver.completions import CompletionsServer


@pytest.fixture
async def model() -> AsyncIterator[CompletionsServer]:
    async with CompletionsServer() as server:
        yield server
