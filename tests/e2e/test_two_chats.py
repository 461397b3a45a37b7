"""One supervisor, a repository in Slack and one in Telegram.

| case | what happens |
|---|---|
| T01 | each is answered in its own chat; killed while both are written to, it loses and doubles nothing |
| T02 | Telegram alone: without any token of Slack it is set up, registered, served and checked |
| T03 | a token that Telegram refuses is named, and Slack goes on |
| T04 | a private message is about the one repository that its writer may use, also after a kill |
| T05 | `/inbox` shows what needs somebody in their private chat, of Telegram's repositories only |
| T06 | a card is decided by a button, also across a kill; somebody who is not allowed decides nothing |
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from codebutler.chat.delivery.outgoing import AGAIN
from tests.e2e.house import DEADLINE_S, LOOK_S, House, T, house, whole_text
from tests.e2e.test_matrix import QUICK
from tests.programs import require
from tests.telegram.server import ANA, BEN, GROUP, TOKEN, BotServer

ASKED = "list the files"
LISTED = "README.md"


@asynccontextmanager
async def both(tmp_path: Path, git_repo: Path) -> AsyncIterator[tuple[House, BotServer]]:
    """Set up as `codebutler setup` and `add-repo` do it: ``shop`` in Slack, ``blog`` in Telegram."""
    async with (
        BotServer() as telegram,
        house(tmp_path, "shop", extra_env={"TELEGRAM_API_URL": telegram.url}) as built,
    ):
        await built.add_repo(git_repo, "shop", agent=QUICK)
        await connect(built, telegram, shutil.copytree(git_repo, tmp_path / "blog"))
        yield built, telegram


async def connect(built: House, telegram: BotServer, repo: Path) -> None:
    await built.run("setup", "--telegram-token", telegram.token, "--telegram-user", str(ANA))
    built.repositories.append(repo)
    built.hand_over()
    told = await built.run(
        "add-repo", str(repo), "--telegram", str(GROUP), "--name", "blog", "--agent", "rehearsal"
    )
    assert f"tg:{GROUP}" in told


def answers(telegram: BotServer, containing: str, chat: int = GROUP) -> list[dict[str, Any]]:
    """What the bot has said there."""
    said = telegram.telegram.chats[chat].messages.values()
    return [each for each in said if each["from"]["is_bot"] and containing in each.get("text", "")]


def with_button(telegram: BotServer, label: str) -> int | None:
    """The number of a message in the group with such a button."""
    found = telegram.telegram.chats[GROUP].messages
    labels = {number: [key for row in telegram.keys(GROUP, number) for key in row] for number in found}
    return next((number for number, keys in labels.items() if any(label in key for key in keys)), None)


async def until(built: House, look: Callable[[], T | None]) -> T:
    """What it looks for, once it is there."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (found := look()):  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"it never came\n{built.log()}") from None
    return found


def answered_in(telegram: BotServer, chat: int = GROUP) -> set[int]:
    """The messages that the bot has answered there."""
    return {each["reply_to_message"]["message_id"] for each in answers(telegram, LISTED, chat)}


async def until_answered(built: House, telegram: BotServer, times: int, chat: int = GROUP) -> None:
    await until_said(built, telegram, LISTED, times, chat)


async def until_said(built: House, telegram: BotServer, what: str, times: int, chat: int) -> None:
    await until(built, lambda: len(answers(telegram, what, chat)) >= times)


async def until_both(built: House) -> None:
    await built.until_status(
        lambda status: (
            [status[name]["state"] for name in ("slack", "telegram")] == ["connected", "connected"]
            and all(repo["worker"]["state"] in ("running", "sleeping") for repo in status["repos"])
        )
    )


async def test_t01_a_kill_between_two_chats_loses_and_doubles_nothing(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with both(tmp_path, git_repo) as (built, telegram):
        channel = built.channel_id("shop")
        await built.start_supervisor()
        await until_both(built)
        first = await built.say(channel, ASKED)
        asked = [telegram.say(GROUP, ASKED)]
        telegram.say(GROUP, ASKED, user=BEN)
        await built.answer(channel, first, LISTED)
        assert await built.outcome(channel, first) == "white_check_mark"
        await until_answered(built, telegram, 1)
        status = await built.until_status(lambda status: status["journal"]["pending"] == 0)
        workers = [repo["worker"]["pid"] for repo in status["repos"]]
        for pid in workers:  # they take nothing any more: no run is interrupted, which would ask its thread
            os.kill(pid, signal.SIGSTOP)
        second = await built.say(channel, ASKED)
        asked.append(telegram.say(GROUP, ASKED))
        await built.until_status(lambda status: status["journal"]["pending"] == 2)
        await built.stop(signal.SIGKILL)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        third = await built.say(channel, ASKED)
        asked.append(telegram.say(GROUP, ASKED))
        await built.start_supervisor()
        await until_both(built)
        for ts in (second, third):
            await built.answer(channel, ts, LISTED)
        await until(built, lambda: answered_in(telegram) == set(asked))
        status = await built.until_status(
            lambda status: status["journal"]["pending"] == 0 and status["outbox"]["pending"] == 0
        )
        assert {repo["name"]: repo["channel_id"] for repo in status["repos"]} == {
            "shop": channel,
            "blog": f"tg:{GROUP}",
        }
        assert {repo["channel"] for repo in status["repos"]} == {"#shop", "shop"}
        # A bot cannot look up what it sent. What may have arrived before the kill is sent again and says so.
        unmarked = [each for each in answers(telegram, LISTED) if AGAIN not in each["text"]]
        assert len(unmarked) <= len(asked)
        for ts in (first, second, third):
            assert len([each for each in built.answers(channel, ts) if LISTED in whole_text(each)]) == 1
        assert "not authorized" in answers(telegram, "not authorized")[0]["text"]
        assert TOKEN not in built.log()


async def test_t02_telegram_alone_needs_nothing_of_slack(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with (
        BotServer() as telegram,
        house(tmp_path, extra_env={"TELEGRAM_API_URL": telegram.url}) as built,
    ):
        (built.home / "config.json").write_text("{}")
        await connect(built, telegram, git_repo)
        await built.start_supervisor()
        status = await built.until_status(lambda status: status["telegram"]["state"] == "connected")
        assert "slack" not in status
        telegram.say(GROUP, ASKED)
        await until_answered(built, telegram, 1)
        assert "telegram    connected" in await built.run("status")
        found = json.loads(await built.run("doctor", "--json", check=False))
        findings = [each for each in found["findings"] if each["area"] in ("slack", "telegram", "channels")]
        assert {each["area"] for each in findings} == {"telegram", "channels"}
        assert {each["level"] for each in findings} <= {"ok", "warn"}


async def test_t03_a_token_that_telegram_refuses_leaves_slack_at_work(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with both(tmp_path, git_repo) as (built, telegram):
        channel = built.channel_id("shop")
        telegram.token = f"{TOKEN[:-1]}x"
        await built.start_supervisor()
        status = await built.until_status(
            lambda status: status["slack"]["state"] == "connected" and bool(status["telegram"]["trouble"])
        )
        assert "Telegram refuses" in status["telegram"]["trouble"]
        assert TOKEN not in json.dumps(status)
        assert status["slack"]["trouble"] == ""
        ts = await built.say(channel, ASKED)
        await built.answer(channel, ts, LISTED)


async def test_t04_a_private_chat_finds_its_repository(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with both(tmp_path, git_repo) as (built, telegram):
        await built.start_supervisor()
        await until_both(built)
        telegram.say(ANA, ASKED)
        await until_answered(built, telegram, 1, ANA)
        assert answers(telegram, LISTED) == [], "what is asked in private is answered there"
        telegram.say(ANA, ASKED)
        await built.stop(signal.SIGKILL)
        await built.start_supervisor()
        await until_answered(built, telegram, 2, ANA)


async def test_t05_what_needs_somebody_stands_in_their_private_chat(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with both(tmp_path, git_repo) as (built, telegram):
        await built.start_supervisor()
        await until_both(built)
        telegram.say(ANA, "/inbox")
        # The group is called shop.
        await until_said(built, telegram, "shop blog", 1, ANA)
        assert answers(telegram, "shop shop", ANA) == [], "that is Slack's"


async def test_t06_a_card_is_decided_by_a_button_and_only_by_who_is_allowed(
    tmp_path: Path, git_repo: Path
) -> None:
    require("bwrap")
    async with both(tmp_path, git_repo) as (built, telegram):
        await built.start_supervisor()
        await until_both(built)
        telegram.say(GROUP, "delete README.md")
        card = await until(built, lambda: with_button(telegram, "Allow"))
        stranger = telegram.press(GROUP, card, "Allow", user=BEN)
        await until(built, lambda: stranger in telegram.telegram.answers)
        assert (tmp_path / "blog" / "README.md").exists()
        await built.stop(signal.SIGKILL)
        telegram.press(GROUP, card, "Allow")
        await built.start_supervisor()
        await until(built, lambda: not telegram.keys(GROUP, card))
        audit = (built.home / "logs" / "audit.jsonl").read_text()
        assert f'"user":"tg:{BEN}"' in audit.replace(" ", "")
