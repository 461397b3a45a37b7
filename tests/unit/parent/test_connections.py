"""Two chats at once: each connection lives by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from codebutler.chat.platform import ConnectedChat
from codebutler.chat.slack.socket import SocketStatus
from codebutler.config.chats import ChatSection, SlackSection, TelegramSection
from codebutler.config.schema import Config
from codebutler.domain.errors import ChatAuthError
from codebutler.parent.integration import ChatConnections
from codebutler.platform.tasks import Tasks
from tests.clock import settle

REFUSED = ChatAuthError("Slack refuses the token", "invalid_auth")


class Line:
    """A connection that does what it is told."""

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.trouble = ""
        self.looked = 0

    @property
    def status(self) -> SocketStatus:
        return SocketStatus(
            state="connected" if self.connected.is_set() else "connecting", trouble=self.trouble
        )

    async def run(self) -> None:
        self.trouble = await self.ending

    async def stop(self) -> None:
        if not self.ending.done():
            self.ending.set_result("")

    def look_again(self) -> None:
        self.looked += 1


class One:
    """A chat that is connected by such a line."""

    def __init__(self, section: type[ChatSection]) -> None:
        self.connection = Line()
        self.met: list[Collection[str]] = []
        self.tokens: list[str] = []
        self.refused: ChatAuthError | None = None
        self.chat = ConnectedChat(
            section=section,
            connection=self.connection,
            check=self.check,
            use_tokens=lambda config: self.tokens.append(config.telegram.bot_token),
            work=self.work,
            meet=self.meet,
        )

    async def work(self) -> None:
        await asyncio.Event().wait()

    async def meet(self, users: Collection[str]) -> None:
        self.met.append(users)

    def check(self, config: Config) -> None:
        if self.refused is not None:
            raise self.refused


@dataclass
class Two:
    slack: One
    telegram: One
    connections: ChatConnections
    lines: list[str]
    running: asyncio.Task[None]


@asynccontextmanager
async def connected(*chats: One) -> AsyncIterator[tuple[ChatConnections, list[str], asyncio.Task[None]]]:
    lines: list[str] = []
    tasks = Tasks(lambda name, error: lines.append(f"{name}: {error!r}"))
    connections = ChatConnections(
        [each.chat for each in chats],
        lambda: {"U0ANA", "tg:111"},
        lambda users: None,
        lambda repo, tag, text: lines.append(f"{tag} {text}"),
        tasks,
    )
    running = asyncio.create_task(connections.run())
    await settle()
    yield connections, lines, running
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await tasks.close(1)


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    slack, telegram = One(SlackSection), One(TelegramSection)
    async with connected(slack, telegram) as (connections, lines, running):
        yield Two(slack, telegram, connections, lines, running)


async def test_either_chat_is_enough_to_be_ready_and_meets_its_own_people(two: Two) -> None:
    two.telegram.connection.connected.set()
    await settle()
    assert two.connections.any_connected.is_set()
    assert (two.slack.met, two.telegram.met) == ([], [["tg:111"]])
    two.slack.connection.connected.set()
    await settle()
    assert (two.slack.met, two.telegram.met) == ([["U0ANA"]], [["tg:111"]])


async def test_a_token_that_one_chat_refuses_leaves_the_other_at_work(two: Two) -> None:
    two.slack.connection.ending.set_exception(REFUSED)
    await settle()
    assert not two.running.done()
    assert "Slack refuses the token" in two.connections.trouble(two.slack.chat)
    assert two.connections.trouble(two.telegram.chat) == ""
    assert two.lines == [f"ERR no more events from Slack: {two.connections.trouble(two.slack.chat)}"]


async def test_an_error_of_ours_in_one_adapter_leaves_the_other_at_work(two: Two) -> None:
    two.telegram.connection.ending.set_exception(KeyError("update_id"))
    await settle()
    assert not two.running.done()
    assert "KeyError" in two.connections.trouble(two.telegram.chat)
    assert two.connections.trouble(two.slack.chat) == ""


async def test_tokens_that_every_chat_refuses_end_the_start(two: Two) -> None:
    for each in (two.slack, two.telegram):
        each.connection.ending.set_exception(REFUSED)
    with pytest.raises(ChatAuthError, match="refuses the token"):
        await two.running


async def test_with_one_chat_alone_its_refusal_is_the_end() -> None:
    slack = One(SlackSection)
    async with connected(slack) as (_, lines, running):
        slack.connection.ending.set_exception(REFUSED)
        with pytest.raises(ChatAuthError):
            await running
        assert lines == []


async def test_with_one_chat_alone_an_error_of_ours_is_raised() -> None:
    slack = One(SlackSection)
    async with connected(slack) as (_, _lines, running):
        slack.connection.ending.set_exception(KeyError("type"))
        with pytest.raises(KeyError):
            await running


async def test_a_stop_is_no_trouble(two: Two) -> None:
    await two.connections.stop()
    await two.running
    assert two.lines == []
    assert [two.connections.trouble(each) for each in two.connections] == ["", ""]


async def test_what_has_changed_is_told_to_both(two: Two) -> None:
    two.connections.look_again()
    two.connections.use_tokens(Config())
    assert [each.connection.looked for each in (two.slack, two.telegram)] == [1, 1]
    assert two.connections.names == ("Slack", "Telegram")
    two.connections.meet()
    await settle()
    assert two.slack.met == [], "it is not connected yet"


async def test_a_token_of_the_wrong_kind_changes_none_of_them(two: Two) -> None:
    two.telegram.refused = REFUSED
    with pytest.raises(ChatAuthError):
        two.connections.use_tokens(Config())
    assert (two.slack.tokens, two.telegram.tokens) == ([], [])
