"""Many repositories under one supervisor, where few files may be open.

| case | what happens |
|---|---|
| N01 | 200 repositories at a soft limit of 1,024 open files: every one is answered, nobody is quarantined |
| N02 | 60 repositories at a hard limit of 256: every one is answered; the log, `status` and `doctor` name the limit |
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bench.scene import Scene, scene
from tests.commands import output_of
from tests.e2e.house import command

UP = {"running", "sleeping"}


def all_up(status: dict[str, Any]) -> bool:
    return status["slack"]["state"] == "connected" and all(
        repo["worker"]["state"] in UP for repo in status["repos"]
    )


async def answered(product: Scene) -> None:
    """Every repository answers, all asked at once."""
    await asyncio.gather(*(product.asked("!ping", "pong", name) for name in product.names))


def never_down(product: Scene) -> None:
    said = product.output.read_text()
    assert "quarantined" not in said
    assert "it starts again in" not in said


async def test_n01_two_hundred_repositories_at_the_usual_limit(tmp_path: Path) -> None:
    async with scene(tmp_path / "scene", 200) as product:
        product.through = ("sh", "-c", 'ulimit -Sn 1024 && exec "$@"', "sh")
        await product.supervise(all_up)
        await answered(product)
        status = await product.until_status(all_up)
        assert status["supervisor"]["trouble"] == ""
        never_down(product)


async def test_n02_sixty_repositories_where_few_files_may_be_open(tmp_path: Path) -> None:
    async with scene(tmp_path / "scene", 60) as product:
        product.through = ("sh", "-c", 'ulimit -n 256 && exec "$@"', "sh")
        await product.supervise(all_up)
        await answered(product)
        await answered(product)
        never_down(product)
        status = await product.until_status(all_up)
        words = "the limit of open files (256) allows 28 workers at once for 60 repositories"
        assert words in product.output.read_text()
        assert words in status["supervisor"]["trouble"]
        assert words in await output_of(*command("doctor"), env=product.env, check=False)
        assert sum(repo["worker"]["state"] == "running" for repo in status["repos"]) <= 28
