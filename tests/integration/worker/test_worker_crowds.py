"""One person's messages fill a repository's line only so far; what is beyond is kept, and goes on when asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.domain.model import Command, Prompt
from codebutler.protocol.messages import Heartbeat
from tests import events
from tests.events import clicked, posted
from tests.integration.worker.test_worker_parking import buttons, press
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker


async def fills(parent: Parent, count: int) -> None:
    """One turn that runs, and ``count`` messages of the same person that wait."""
    for number in range(count + 1):
        await parent.stored(parent.says(f"task {number}", f"{100 + number}.1"))
        await parent.run(0)


def says_as(parent: Parent, user: str, text: str, ts: str) -> int:
    return parent.deliver(posted(channel=CHANNEL, ref=ts, user=user, text=text), Prompt(text=text))


async def test_one_too_many_is_kept_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, queue_per_user=2)) as parent:
        await fills(parent, 2)
        await parent.stored(parent.says("one too many", "200.1"))
        card = await parent.post_with("Too many of your messages")
        assert card.thread == "200.1"
        assert list(buttons(card)) == ["Continue", "Drop"]
        await parent.until(lambda: parent.said(Heartbeat)[-1].queued == 2)
        press(parent, buttons(card)["Continue"])
        await parent.post_with("There is still no room for this")
        for number in range(3):
            (await parent.run(number)).finish()
        await parent.until(lambda: parent.reactions("102.1") == ["white_check_mark"], flow=True)
        press(parent, buttons(card)["Continue"], at="500.2")
        run = await parent.run(3)
        assert run.request.prompt == "one too many"
        run.finish()
        await parent.until(lambda: parent.reactions("200.1") == ["white_check_mark"], flow=True)


async def test_others_have_their_own_room(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, queue_per_user=1)) as parent:
        await fills(parent, 1)
        await parent.stored(says_as(parent, "U0BEN", "mine", "300.1"))
        await parent.until(lambda: parent.reactions("300.1") == ["hourglass_flowing_sand"], flow=True)
        assert not [post for post in parent.posts if "Too many" in text_of(post)]


async def test_a_flood_in_one_thread_is_told_once_and_kept_whole(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, queue_per_user=1)) as parent:
        await fills(parent, 1)
        for number in range(5):
            await parent.stored(parent.says(f"more {number}", f"{400 + number}.1", "400.0"))
        status = posted(channel=CHANNEL, ref="450.1", user=USER, text="!status")
        parent.deliver(status, Command(name="status"))
        # What is on hold has not run.
        await parent.post_with("Today: 1 run ·")
        edited = events.edited(channel=CHANNEL, ref="402.1", user=USER, text="better", edit="9.9")
        await parent.stored(parent.deliver(edited, Prompt(text="better")))
        cards = [post for post in parent.posts if "Too many" in text_of(post)]
        assert len(cards) == 1
        for number in range(2):
            (await parent.run(number)).finish()
        await parent.until(lambda: parent.reactions("101.1") == ["white_check_mark"], flow=True)
        press(parent, buttons(cards[0])["Continue"])
        run = await parent.run(2)
        assert run.request.prompt == "more 0\n\nmore 1\n\nbetter\n\nmore 3\n\nmore 4"


@pytest.mark.parametrize("way", ["button", "word"])
async def test_what_was_kept_can_be_dropped_or_continued_by_a_word(tmp_path: Path, way: str) -> None:
    async with worker(settings(tmp_path, queue_per_user=1)) as parent:
        await fills(parent, 1)
        await parent.stored(parent.says("one too many", "200.1"))
        card = await parent.post_with("Too many of your messages")
        if way == "button":
            press(parent, buttons(card)["Drop"])
            await parent.until(lambda: parent.reactions("200.1") == ["octagonal_sign"])
            return
        said = posted(channel=CHANNEL, ref="201.1", user=USER, text="!continue", thread="200.1")
        await parent.stored(parent.deliver(said, Command(name="continue")))
        await parent.post_with("There is still no room for this")


async def test_a_click_of_somebody_else_counts_on_their_own_line(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, queue_per_user=1)) as parent:
        await fills(parent, 1)
        await parent.stored(parent.says("one too many", "200.1"))
        card = await parent.post_with("Too many of your messages")
        action_id, value = buttons(card)["Continue"]
        click = clicked(
            channel=CHANNEL,
            user="U0BEN",
            message="9000.1",
            action_id=action_id,
            value=value,
            press="1.2",
        )
        await parent.stored(parent.deliver(click))
        await parent.until(lambda: parent.said(Heartbeat)[-1].queued == 2)


async def test_zero_is_any_number(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, queue_per_user=0)) as parent:
        await fills(parent, 60)
        await parent.until(lambda: parent.said(Heartbeat)[-1].queued == 60)
