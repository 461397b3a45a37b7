"""Faults on the way to and from Telegram, on the whole product.

| case | what happens |
|---|---|
| F01 | the supervisor dies at each point on a message's way: it is answered all the same, and done once |
| F02 | Telegram asks to wait (429) in the middle of an answer: it comes, once, and later |
| F03 | another program fetches the bot's messages (409): it is said, and when it is gone all goes on |
| F04 | no network while it polls: what was written meanwhile is answered |
| F05 | no network when it says something, and nobody knows whether it arrived: a second copy says so |
| F06 | hostile and huge updates keep nobody else's messages away |
| F07 | away for longer than Telegram keeps presses, or messages: where a card waits it is said |
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from codebutler.chat.delivery.outgoing import AGAIN
from codebutler.intake.absence import NOT_KEPT, PRESSES_NOT_KEPT, span
from codebutler.platform import kill_points
from tests.e2e.test_telegram import ASKED, LISTED, Talk, talk
from tests.telegram.server import ANA, GROUP, Fault

POINTS = ("journal.append", "route", "deliver", "settle", "journal.settle", "post", "answer")
RESUMED = "(resumed session)"
IN_THE_OPEN = json.dumps({"sandbox": {"mode": "none"}, "agent": {"debounceSeconds": 0}})
FINAL = {"👍", "👎", "🤷"}
FOOTER = "tokens:"


def replies(it: Talk, asked: int) -> list[dict[str, Any]]:
    """What was said in the conversation that a message began."""
    said = it.server.telegram.own(GROUP)
    return [each for each in said if each.get("reply_to_message", {}).get("message_id") == asked]


def unmarked(it: Talk, asked: int, containing: str) -> list[dict[str, Any]]:
    """The answers that do not say that they are a second copy."""
    return [each for each in replies(it, asked) if containing in each["text"] and AGAIN not in each["text"]]


async def status_of(it: Talk) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(await it.built.run("status", "--json"))["telegram"]
    return found


async def decided(it: Talk, asked: int) -> None:
    """Until a message has its last mark; whatever asks whether to continue is told so."""
    shown = it.server.telegram.chats[GROUP].reactions
    pressed: set[int] = set()

    def is_over() -> bool:
        for message in replies(it, asked):
            number = message["message_id"]
            if number not in pressed and any(
                "Continue" in key for [key, *_] in it.server.keys(GROUP, number)
            ):
                it.server.press(GROUP, number, "Continue")
                pressed.add(number)
        return set(shown.get(asked, ())) <= FINAL and bool(shown.get(asked))

    await it.until(f"the last mark of {asked}", is_over)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("side", ["before", "after"])
async def test_f01_death_at_each_point(tmp_path: Path, git_repo: Path, side: str) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    async with talk(tmp_path, git_repo, config=IN_THE_OPEN, env={kill_points.VARIABLE: str(plans)}) as it:
        for point in POINTS:
            written = plans / "parent.new"
            written.write_text(f"{point}.{side} 1\n")
            written.replace(plans / "parent.plan")
            resumed = it.built.log().count(RESUMED)
            asked = it.server.say(GROUP, f"append here to {point}.txt")
            assert it.built.supervisor is not None
            async with asyncio.timeout(60):
                assert await it.built.supervisor.wait() == -signal.SIGKILL, point
            await it.connected()
            await decided(it, asked)
            made = git_repo / f"{point}.txt"
            # A run that died before it wrote goes on in its session, where the rehearsal agent knows of no task.
            assert made.exists() or it.built.log().count(RESUMED) > resumed, point
            assert not made.exists() or made.read_text().count("here") == 1, point
            assert len(unmarked(it, asked, FOOTER)) <= 1, point
            assert [each for each in replies(it, asked) if FOOTER in each["text"]], point
        await it.built.until_status(
            lambda status: status["journal"]["pending"] == 0 and status["outbox"]["pending"] == 0
        )


async def test_f02_telegram_asks_to_wait(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        for method in ("sendMessage", "setMessageReaction", "editMessageText"):
            it.server.faults.append(Fault(method, "rate_limit", retry_after=2, times=2))
        asked = it.server.say(GROUP, ASKED)
        await it.heard(LISTED)
        await it.marked(asked, "👍")
        assert len([each for each in replies(it, asked) if LISTED in each["text"]]) == 1
        assert it.own(AGAIN) == []


async def test_f03_another_program_fetches_the_messages(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        other = asyncio.create_task(it.server.polls.get(None, 100, 50, None))
        status = await it.built.until_status(
            lambda status: "another program" in status["telegram"]["trouble"]
        )
        assert status["telegram"]["state"] == "reconnecting"
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        asked = it.server.say(GROUP, ASKED)
        await it.marked(asked, "👍")
        assert (await status_of(it))["trouble"] == ""
        assert len(it.own(LISTED)) == 1


async def test_f04_no_network_while_it_polls(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        it.server.faults.append(Fault("getUpdates", "dropped", times=2))
        it.server.faults.append(Fault("getUpdates", "status", code=502))
        # The poll that waits is answered with the first; the next three fail.
        first = it.server.say(GROUP, ASKED)
        second = it.server.say(GROUP, "show README.md")
        await it.marked(first, "👍")
        await it.marked(second, "👍")
        await it.until("the end of the faults", lambda: not it.server.faults)
        status = (await it.built.until_status(lambda status: status["telegram"]["state"] == "connected"))[
            "telegram"
        ]
        assert status["trouble"] == ""
        assert status["reconnects"] >= 1


@pytest.mark.parametrize("kind", ["lost", "dropped"])
async def test_f05_nobody_knows_whether_it_arrived(tmp_path: Path, git_repo: Path, kind: Any) -> None:
    async with talk(tmp_path, git_repo) as it:
        it.server.faults.append(Fault("sendMessage", kind))
        asked = it.server.say(GROUP, ASKED)
        await it.marked(asked, "👍")
        found = it.own(LISTED)
        assert len(found) in ((1, 2) if kind == "lost" else (1,))
        assert len(unmarked(it, asked, LISTED)) == len(found) - len(it.own(AGAIN))
        assert len(it.own(AGAIN)) <= 1


HUGE = "x" * 2_000_000
HOSTILE: tuple[dict[str, Any], ...] = (
    {"message": {"message_id": "1", "chat": 7}},
    {"message": {"message_id": -(2**80), "date": "now", "chat": {"id": GROUP, "type": "supergroup"}}},
    {"message": None},
    {"message": {"chat": {"id": 2**70, "type": "supergroup"}, "message_id": 1, "date": 1, "text": "hi"}},
    {"callback_query": {"id": {}, "from": [], "data": HUGE}},
    {"edited_message": {"chat": {"id": GROUP, "type": "supergroup"}, "message_id": 10**30}},
    {"my_chat_member": {"chat": {"id": "x"}}},
    {"something_new": {"deep": [[[[[[[[[[{}]]]]]]]]]]}},
    {"message_reaction": {"chat": {}, "new_reaction": [{"type": "unknown"}]}},
)


async def test_f06_hostile_and_huge_updates(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        telegram = it.server.telegram
        telegram.allowed = None
        number = telegram.tell("message", {"date": telegram.now()})
        (waiting,) = telegram.updates
        for at, update in enumerate(HOSTILE, 1):
            telegram.updates.append(type(waiting)({"update_id": number + at, **update}, waiting.until_s))
        telegram._next_update = number + len(HOSTILE) + 1
        it.server.say(GROUP, f"list the files {HUGE}")
        it.server.say(GROUP, "\u202e\u0000list\ud800".encode("utf-8", "replace").decode() + " it")
        asked = it.server.say(GROUP, ASKED, user=ANA)
        await it.marked(asked, "👍")
        status = await status_of(it)
        assert status["state"] == "connected"
        assert status["unreadable"] + status["ignored"] >= len(HOSTILE)
        assert (await it.built.status() or {})["journal"]["trouble"] == ""


@pytest.mark.parametrize(
    ("hours", "lost"),
    [(1, (PRESSES_NOT_KEPT,)), (30, (NOT_KEPT.format(span(timedelta(hours=24))), PRESSES_NOT_KEPT))],
)
async def test_f07_what_was_not_kept_is_told_where_a_card_waits(
    tmp_path: Path, git_repo: Path, hours: int, lost: tuple[str, ...]
) -> None:
    (git_repo / "old.txt").write_text("old")
    async with talk(tmp_path, git_repo) as it:
        asked = it.server.say(GROUP, "delete old.txt")
        await it.heard("rm old.txt")
        await it.marked(asked, "🤔")
        await it.built.stop(signal.SIGKILL)
        alive = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
        with closing(sqlite3.connect(it.built.home / "journal.db")) as journal, journal:
            changed = journal.execute("UPDATE notes SET value = ? WHERE name LIKE 'alive of %'", (alive,))
            assert changed.rowcount == 1
        await it.connected()
        told = await it.heard(lost[0])
        assert all(each in told["text"] for each in lost)
        assert (hours > 24) is ("Messages sent" in told["text"])
