"""A turn whose agent was refused by its service: parked, and carried on when its time comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.domain.model import Command, Post, Update
from codebutler.protocol.messages import Heartbeat, StopTurns
from codebutler_worker.agents.backend import Finished, Started
from tests.events import clicked, posted
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, Run, settings, worker

LINE = "You have hit your 5-hour limit"
TWO_HOURS_S = 7200.0


def buttons(shown: Post | Update) -> dict[str, tuple[str, str]]:
    """(action_id, value) by label."""
    elements = [one for block in blocks_of(shown) for one in block.get("elements", [])]
    return {element["text"]["text"]: (element["action_id"], element["value"]) for element in elements}


def press(parent: Parent, button: tuple[str, str], *, at: str = "500.1") -> int:
    event = clicked(
        channel=CHANNEL, user=USER, message="9000.1", action_id=button[0], value=button[1], press=at
    )
    return parent.deliver(event)


def refused(run: Run, wait_s: float, now_s: float) -> None:
    run.does(Started("session-1"), Finished(False, LINE, "limit", resets_at_s=now_s + wait_s))


async def parks(parent: Parent, wait_s: float = TWO_HOURS_S) -> Post:
    """A turn of thread 100.1 that is parked; its card."""
    parent.says("fix it", "100.1")
    run = await parent.run(0)
    refused(run, wait_s, parent.clock.now().timestamp())
    return await parent.post_with(LINE)


def now_s(parent: Parent) -> float:
    return parent.clock.now().timestamp()


async def test_it_goes_on_by_itself_when_the_limit_is_over(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        card = await parks(parent)
        assert "Resumes automatically at" in text_of(card)
        assert "in 2h00m" in text_of(card)
        assert list(buttons(card)) == ["Try now", "Drop"]
        await parent.until(lambda: parent.reactions("100.1") == ["hourglass_flowing_sand"], flow=True)
        # It counts as queued: a worker that slept would miss the hour.
        await parent.until(lambda: parent.said(Heartbeat)[-1].queued == 1)
        await parent.clock.advance(TWO_HOURS_S - 300)
        assert len(parent.backend.runs) == 1
        for _ in range(8):
            await parent.clock.advance(60)
        run = await parent.run(1)
        assert run.request.session_id == "session-1"
        assert "Go on from where you stopped" in run.request.prompt
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        assert any("Resumed" in text_of(update) for update in parent.updates)
        await parent.until(lambda: parent.said(Heartbeat)[-1].queued == 0, flow=True)


async def test_a_parked_turn_survives_its_worker(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await parks(parent)
        await parent.until(lambda: parent.reactions("100.1") == ["hourglass_flowing_sand"], flow=True)
    async with worker(settings(tmp_path)) as parent:
        await parent.until(lambda: any(beat.queued == 1 for beat in parent.said(Heartbeat)))
        assert parent.backend.runs == []
        assert not any("machine stopped" in text_of(post) for post in parent.posts)
        for _ in range(125):
            await parent.clock.advance(60)
        run = await parent.run(0)
        assert run.request.session_id == "session-1"


async def test_a_person_may_try_sooner(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        card = await parks(parent)
        press(parent, buttons(card)["Try now"])
        run = await parent.run(1)
        press(parent, buttons(card)["Try now"], at="500.2")  # a second click
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        await parent.clock.advance(TWO_HOURS_S)
        assert len(parent.backend.runs) == 2
        assert any("▶ Continued." in text_of(update) for update in parent.updates)


async def test_a_person_may_go_on_with_another_agent(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        card = await parks(parent)
        press(parent, ("codebutler.retry", f"{buttons(card)['Try now'][1]}:rehearsal"))
        run = await parent.run(1)
        assert run.request.session_id is None
        assert "fix it" in run.request.prompt
        await parent.until(
            lambda: any("Continued on rehearsal" in text_of(update) for update in parent.updates)
        )


@pytest.mark.parametrize("other", ["run", "image", "nobody"])
async def test_only_an_agent_that_reads_prose_goes_on(tmp_path: Path, other: str) -> None:
    async with worker(settings(tmp_path)) as parent:
        card = await parks(parent)
        forged = ("codebutler.retry", f"{buttons(card)['Try now'][1]}:{other}")
        await parent.stored(press(parent, forged))
        await parent.clock.advance(60)
        assert len(parent.backend.runs) == 1
        assert parent.reactions("100.1") == ["hourglass_flowing_sand"]


async def test_what_is_dropped_does_not_come_back(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        card = await parks(parent)
        press(parent, buttons(card)["Drop"])
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])
        press(parent, buttons(card)["Try now"], at="500.2")
        await parent.clock.advance(2 * TWO_HOURS_S)
        assert len(parent.backend.runs) == 1
        await parent.until(lambda: parent.said(Heartbeat)[-1].queued == 0)


async def test_a_stop_of_everything_is_one_of_this_too(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await parks(parent)
        parent.channel.send(StopTurns(user=USER))
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])


@pytest.mark.parametrize("word", ["stop", "reset"])
async def test_a_word_in_the_thread_drops_it(tmp_path: Path, word: str) -> None:
    async with worker(settings(tmp_path)) as parent:
        await parks(parent)
        event = posted(channel=CHANNEL, ref="101.1", user=USER, text=f"!{word}", thread="100.1")
        parent.deliver(event, Command(name=word))
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])
        assert any("🛑 Dropped." in text_of(update) for update in parent.updates)
        await parent.clock.advance(2 * TWO_HOURS_S)
        assert len(parent.backend.runs) == 1


async def test_an_overload_is_retried_and_then_left_to_a_person(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("fix it", "100.1")
        for number, pause_s in enumerate((30, 120, 300)):
            run = await parent.run(number)
            run.does(Started("session-1"), Finished(False, f"overloaded {number}", "overloaded"))
            await parent.post_with(f"overloaded {number}")
            await parent.until(lambda: parent.said(Heartbeat)[-1].queued == 1)
            for _ in range(pause_s // 30):
                await parent.clock.advance(30)
        run = await parent.run(3)
        run.does(Started("session-1"), Finished(False, "overloaded for good", "overloaded"))
        last = await parent.post_with("overloaded for good")
        assert list(buttons(last)) == ["Continue"]
        await parent.until(lambda: parent.reactions("100.1") == ["x"], flow=True)


async def test_other_threads_and_words_go_on_meanwhile(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await parks(parent)
        parent.says("hello", "200.1", "100.1", prefix="rehearsal")
        run = await parent.run(1)
        run.finish()
        await parent.until(lambda: parent.reactions("200.1") == ["white_check_mark"], flow=True)
        assert parent.reactions("100.1") == ["hourglass_flowing_sand"]


async def test_after_a_login_there_is_a_way_on(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("fix it", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), Finished(False, "run `claude auth login`", "auth"))
        card = await parent.post_with("claude auth login")
        press(parent, buttons(card)["Continue"])
        await parent.run(1)
