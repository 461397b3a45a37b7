"""What was written while nothing ran: told as late, asked about when it is old."""

from __future__ import annotations

from pathlib import Path

from codebutler.domain.model import ButtonClicked, Command, Prompt
from tests.events import clicked, deleted, edited, posted
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker


def stale(parent: Parent, text: str, ts: str, thread_ts: str | None = None) -> int:
    event = posted(channel=CHANNEL, ref=ts, user=USER, text=text, thread=thread_ts, late=True, stale=True)
    return parent.deliver(event, Prompt(text=text))


async def question(parent: Parent) -> dict[str, str]:
    """The values of the question's buttons by action."""
    asked = await parent.post_with("Do you still want this?")
    return {button["action_id"]: button["value"] for button in blocks_of(asked)[1]["elements"]}


def click(action: str, value: str) -> ButtonClicked:
    return clicked(
        channel=CHANNEL, user=USER, message="9000.000001", action_id=action, value=value, press="9.9"
    )


async def test_a_late_message_is_answered_with_a_line_that_says_so(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("fix it", "100.1", late=True)
        (await parent.run(0)).finish("Fixed.")
        answer = await parent.post_with("Fixed.")
        assert "while I was offline" in text_of(answer)
        assert parent.posts == [answer]
        parent.says("and this", "100.2", "100.1")
        (await parent.run(1)).finish("Done too.")
        await parent.post_with("Done too.")
        assert len([post for post in parent.posts if "offline" in text_of(post)]) == 1


async def test_an_old_message_is_asked_about_and_run_only_when_told_to(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(stale(parent, "deploy it", "100.1"))
        values = await question(parent)
        await parent.clock.advance(60)
        assert parent.backend.runs == []
        for _ in range(2):
            parent.deliver(click("codebutler.retry", values["codebutler.retry"]))
        run = await parent.run(0)
        assert "deploy it" in run.request.prompt
        assert "machine stopped" not in run.request.prompt
        run.finish("Deployed.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 1


async def test_what_may_be_done_already_is_asked_about_in_words_of_its_own(tmp_path: Path) -> None:
    event = posted(channel=CHANNEL, ref="100.1", user=USER, text="deploy it", stale=True, handled="maybe")
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(parent.deliver(event, Prompt(text="deploy it")))
        asked = await parent.post_with("I may have worked on this before: _deploy it_")
        values = {button["action_id"]: button["value"] for button in blocks_of(asked)[1]["elements"]}
        await parent.clock.advance(60)
        assert parent.backend.runs == []
        parent.deliver(click("codebutler.retry", values["codebutler.retry"]))
        assert (await parent.run(0)).request.prompt.endswith("deploy it")


async def test_an_old_message_that_is_dropped_never_runs(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        stale(parent, "deploy it", "100.1")
        values = await question(parent)
        parent.deliver(click("codebutler.drop", values["codebutler.drop"]))
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])
        await parent.clock.advance(60)
        assert parent.backend.runs == []


async def test_a_thread_of_old_messages_is_one_question(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        stale(parent, "one", "100.1")
        stale(parent, "two", "100.2", "100.1")
        await parent.stored(stale(parent, "three", "100.3", "100.1"))
        values = await question(parent)
        assert len(parent.posts) == 1
        parent.deliver(click("codebutler.retry", values["codebutler.retry"]))
        prompt = (await parent.run(0)).request.prompt
        assert [word for word in ("one", "two", "three") if word in prompt] == ["one", "two", "three"]


async def test_an_old_message_can_still_be_edited_and_withdrawn(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        stale(parent, "deploy A", "100.1")
        values = await question(parent)
        edit = edited(channel=CHANNEL, ref="100.1", user=USER, text="deploy B", edit="101.0")
        await parent.stored(parent.deliver(edit, Prompt(text="deploy B")))
        parent.deliver(click("codebutler.retry", values["codebutler.retry"]))
        assert "deploy B" in (await parent.run(0)).request.prompt
        stale(parent, "forget me", "200.1")
        gone = deleted(channel=CHANNEL, ref="200.1", user=USER)
        await parent.stored(parent.deliver(gone))
        second = blocks_of(parent.posts[-1])[1]["elements"][0]["value"]
        await parent.stored(parent.deliver(click("codebutler.retry", second)))
        assert len(parent.backend.runs) == 1


async def test_an_old_command_is_not_obeyed_but_answered(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        old = posted(
            channel=CHANNEL, ref="100.2", user=USER, text="!stop", thread="100.1", late=True, stale=True
        )
        parent.deliver(old, Command(name="stop"))
        await parent.post_with("Send it again")
        run.finish("Done.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
