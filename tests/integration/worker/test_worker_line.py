"""While the agent is busy: who waits is told the place in line, in the own thread, and the place is kept true."""

from __future__ import annotations

from pathlib import Path

from codebutler.domain.model import Prompt
from tests.events import clicked, deleted, edited
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

NEXT, SECOND, THIRD = "⏳ Next in line.", "⏳ 2nd in line.", "⏳ 3rd in line."


def shown(parent: Parent) -> dict[str, str]:
    """What the progress message in each thread shows now."""
    threads: dict[str, str] = {}
    texts: dict[str, str] = {}
    for number, post in enumerate(parent.posts, start=1):
        if blocks_of(post) and blocks_of(post)[-1]["type"] == "actions":
            ts = f"9000.{number:06d}"
            threads[ts], texts[ts] = post.thread or "", text_of(post)
    texts |= {update.target: text_of(update) for update in parent.updates}
    return {threads[ts]: texts[ts] for ts in threads}


async def sees(parent: Parent, **places: str) -> None:
    """Wait until the threads ``m1`` (ts 1.1), ``m2`` … show these beginnings."""

    def true() -> bool:
        now = shown(parent)
        return all(now.get(f"{name[1:]}.1", "").startswith(text) for name, text in places.items())

    await parent.until(true, flow=True)


async def test_who_waits_knows_the_place_and_it_is_kept_true(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal")) as parent:
        parent.says("one", "1.1")
        first = await parent.run(0)
        for number in (2, 3, 4):
            parent.says(f"{number}", f"{number}.1")
        await sees(parent, m1="🔧 claude is working", m2=NEXT, m3=SECOND, m4=THIRD)
        await parent.until(lambda: parent.reactions("3.1") == ["hourglass_flowing_sand"], flow=True)
        first.finish("One.")
        second = await parent.run(1)
        await sees(parent, m1="✅", m2="🔧 claude is working", m3=NEXT, m4=SECOND)
        assert len([post for post in parent.posts if post.thread == "2.1"]) == 1
        second.finish("Two.")
        (await parent.run(2)).finish("Three.")
        (await parent.run(3)).finish("Four.")
        await sees(parent, m2="✅", m3="✅", m4="✅")


async def test_nobody_is_told_a_place_who_starts_at_once(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal", debounce_s=3)) as parent:
        parent.says("one", "1.1")
        (await parent.run(0)).finish("One.")
        await sees(parent, m1="✅")
        assert not [post for post in parent.posts if "in line" in text_of(post)]


async def test_quiet_tells_no_places(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("one", "1.1")
        first = await parent.run(0)
        parent.says("two", "2.1")
        first.finish("One.")
        (await parent.run(1)).finish("Two.")
        await parent.post_with("Two.")
        assert not [post for post in parent.posts if "in line" in text_of(post)]


async def test_who_leaves_the_line_lets_the_others_move_up(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal")) as parent:
        parent.says("one", "1.1")
        await parent.run(0)
        for number in (2, 3, 4):
            parent.says(f"{number}", f"{number}.1")
        await sees(parent, m4=THIRD)
        parent.deliver(deleted(channel=CHANNEL, ref="2.1", user=USER))
        await sees(parent, m2="🛑 Withdrawn.", m3=NEXT, m4=SECOND)
        post = next(post for post in parent.posts if post.thread == "3.1")
        click = clicked(
            channel=CHANNEL,
            user=USER,
            message="9000.000003",
            action_id="codebutler.stop",
            value=blocks_of(post)[1]["elements"][0]["value"],
            press="5.0",
        )
        parent.deliver(click)
        await sees(parent, m3="🛑 Withdrawn.", m4=NEXT)
        await parent.until(lambda: parent.reactions("3.1") == ["octagonal_sign"])
        assert len(parent.backend.runs) == 1


async def test_an_edit_in_the_line_keeps_the_place(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal")) as parent:
        parent.says("one", "1.1")
        first = await parent.run(0)
        parent.says("two", "2.1")
        parent.says("three", "3.1")
        await sees(parent, m2=NEXT, m3=SECOND)
        edit = edited(channel=CHANNEL, ref="2.1", user=USER, text="two, please", edit="4.0")
        await parent.stored(parent.deliver(edit, Prompt(text="two, please")))
        first.finish("One.")
        assert (await parent.run(1)).request.prompt == "two, please"
        await sees(parent, m2="🔧", m3=NEXT)


async def test_each_message_that_waits_is_answered_in_its_own_thread(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal", scope="channel", debounce_s=3)) as parent:
        parent.says("one", "1.1")
        first = await parent.run(0)
        parent.says("two", "2.1")
        await sees(parent, m2=NEXT)
        await parent.clock.advance(4)
        parent.says("three", "3.1")
        await sees(parent, m3=SECOND)
        # Somebody is still at it: what is said next belongs to it.
        await parent.stored(parent.says("wait", "3.2", "3.1"))
        parent.says("and this", "4.1")
        await sees(parent, m2=NEXT, m3="↪ Answered together", m4=SECOND)
        first.finish("One.")
        second = await parent.run(1)
        assert second.request.prompt == "two"
        second.finish("Two.")
        third = await parent.run(2)
        assert "three" in third.request.prompt
        assert "and this" in third.request.prompt
        third.finish("Three.")
        assert (await parent.post_with("Two.")).thread == "2.1"
        assert (await parent.post_with("Three.")).thread == "4.1"


async def test_a_message_in_line_that_the_agent_is_told_after_all_says_so(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal", busy="steer")) as parent:
        parent.says("one", "1.1")
        run = await parent.run(0)
        parent.says("no, blue", "1.2", "1.1")
        await parent.until(lambda: parent.backend.steered, flow=True)
        await parent.until(lambda: [post for post in parent.posts if "in line" in text_of(post)], flow=True)
        parent.backend.takes_steering = True
        parent.says("and bold", "1.3", "1.1")
        await parent.until(lambda: parent.reactions("1.3") == ["eyes"], flow=True)
        assert any(
            text_of(update).startswith("↪ Passed on to the running agent") for update in parent.updates
        )
        run.finish("Blue and bold.")
        await parent.until(lambda: parent.reactions("1.2") == ["white_check_mark"], flow=True)
        assert parent.backend.steered == ["no, blue", "no, blue\n\nand bold"]
        assert len(parent.backend.runs) == 1


async def test_the_places_are_told_again_after_a_restart(tmp_path: Path) -> None:
    config = settings(tmp_path, verbosity="normal")
    async with worker(config) as parent:
        parent.says("one", "1.1")
        await parent.run(0)
        parent.says("two", "2.1")
        await sees(parent, m2=NEXT)
    async with worker(config) as parent:
        run = await parent.run(0)
        assert run.request.prompt == "two"
        await parent.until(
            lambda: [u for u in parent.updates if text_of(u).startswith("🔧 claude")], flow=True
        )
