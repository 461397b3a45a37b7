"""What the dashboard makes of what workers tell of conversations."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from codebutler.config.chats import message_url
from codebutler.config.registry import RepoEntry
from codebutler.config.schema import Config
from codebutler.domain.errors import CodeButlerError
from codebutler.intake.repos import Served
from codebutler.protocol.conversations import FoundRun, FoundTold, Question
from codebutler.supervisor.queues import T
from codebutler.text.markup import Addresses
from codebutler.web.dashboard.conversations import Conversations, foreign_pieces
from codebutler.web.dashboard.runs import Piece

FOUND = FoundRun(
    id="t1", thread="1.0", agent="claude", at="2026-01-01T12:00:00+00:00", title="a", text="**a**"
)


def served(name: str) -> Served:
    config = msgspec.convert({"slack": {"channelID": "C0123456"}}, Config)
    return Served(RepoEntry(name=name, path=f"/src/{name}", channel_id="C0123456"), config, (), trusted=True)


class ScriptedWorkers:
    """A repository called hung never answers, one called down cannot."""

    async def ask(self, name: str, question: Question, kind: type[T]) -> T:
        if name == "hung":
            await asyncio.Event().wait()
        if name == "down":
            raise CodeButlerError("the worker is not running")
        told = FoundTold(request_id=question.request_id, runs=(FOUND, FOUND))
        assert isinstance(told, kind)
        return told


def searching(*names: str) -> Conversations:
    async def addresses() -> Addresses:
        return partial(message_url, home="")

    return Conversations(
        served=lambda: [served(name) for name in names],
        workers=ScriptedWorkers(),
        name_people=str,
        redact=str,
        addresses=addresses,
        search_s=0.2,
    )


async def test_the_best_of_each_repository_come_first_and_what_is_missing_is_named() -> None:
    found = await searching("shop", "down", "hung", "docs").find("a")
    assert [hit.repo for hit in found.hits] == ["shop", "docs", "shop", "docs"]
    assert found.hits[0].text == (Piece("strong", "a"),)
    assert found.hits[0].page == "/thread/shop/t1"
    assert found.missed == (
        "down: the worker is not running",
        "hung: its worker did not answer in time",
    )


async def test_without_words_or_repositories_nothing_is_found() -> None:
    with pytest.raises(CodeButlerError, match="enter words"):
        await searching("shop").find("  ")
    with pytest.raises(CodeButlerError, match="no repository"):
        await searching("shop").find("a", "other")
    assert (await searching().find("a")).hits == ()


def test_code_blocks_are_set_apart_and_nothing_else_is_read() -> None:
    assert foreign_pieces("see **this**:\n```py\nx = 1\n```\nand\n```\nunclosed") == (
        Piece("text", "see **this**:"),
        Piece("block", "x = 1"),
        Piece("text", "and\n```\nunclosed"),
    )
