"""``agent.onLimit``: what follows when an agent's usage limit is hit, and who answers until the reset."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import AuthorizationRule, AuthorizationSection, RepoSettings
from codebutler.domain.model import Post
from codebutler.protocol.messages import Heartbeat, TurnEnded
from codebutler_worker.agents.backend import Finished, Started
from tests.integration.worker.test_worker_parking import LINE, TWO_HOURS_S, buttons, now_s, press, refused
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

BEN = "U0BEN"
OVER = {"on_limit": "agent rehearsal"}


async def meets_limit(parent: Parent, ts: str = "100.1", *, number: int = 0) -> None:
    """A turn of Claude's in the thread ``ts`` that is refused."""
    parent.says("fix it", ts)
    refused(await parent.run(number), TWO_HOURS_S, now_s(parent))


def names(parent: Parent) -> list[str]:
    """Whose runs there were."""
    return [name for name, _ in parent.backend.chosen]


async def passes(parent: Parent, seconds: float) -> None:
    for _ in range(int(seconds // 60)):
        await parent.clock.advance(60)


async def done(parent: Parent, ts: str) -> None:
    await parent.until(lambda: parent.reactions(ts) == ["white_check_mark"], flow=True)


def only(told: RepoSettings, user: str, prefixes: tuple[str, ...]) -> RepoSettings:
    """The same where that person may use these agents only, and everybody else all."""
    everybody = AuthorizationRule(
        channels=(CHANNEL,), users=(USER,), allowed_prefixes=("claude", "rehearsal")
    )
    rule = AuthorizationRule(channels=(CHANNEL,), users=(user,), allowed_prefixes=prefixes)
    section = AuthorizationSection(rules=(everybody, rule))
    return msgspec.structs.replace(told, config=msgspec.structs.replace(told.config, authorization=section))


async def test_another_agent_goes_on_at_once_and_the_thread_says_why(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, **OVER)) as parent:
        await meets_limit(parent)
        told = await parent.post_with("at its usage limit")
        assert LINE in text_of(told)
        assert "`rehearsal` continues here (`agent.onLimit`)" in text_of(told)
        assert "New messages go to `claude` again after 02:00 UTC on 01 January." in text_of(told)
        assert buttons(told) == {}
        run = await parent.run(1)
        assert names(parent) == ["claude", "rehearsal"]
        assert run.request.session_id is None
        assert run.request.prompt.endswith("fix it")
        assert LINE in run.request.prompt  # what became of the first agent's run
        run.finish("Fixed.", "session-2")
        await done(parent, "100.1")
        ended = [told.outcome for told in parent.said(TurnEnded)]
        assert ended == ["done"]
        await passes(parent, TWO_HOURS_S + 600)
        assert len(parent.backend.runs) == 2


async def test_until_the_reset_the_other_answers_and_after_it_the_first_again(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, **OVER)) as parent:
        await meets_limit(parent)
        (await parent.run(1)).finish("Fixed.", "session-2")
        await done(parent, "100.1")
        parent.says("and the tests?", "101.1", "100.1")
        (await parent.run(2)).finish("Green.", "session-2")
        await done(parent, "101.1")
        parent.says("another thread", "200.1")
        (await parent.run(3)).finish("Here.", "session-3")
        await done(parent, "200.1")
        assert names(parent) == ["claude", "rehearsal", "rehearsal", "rehearsal"]
        told = [post for post in parent.posts if "answers here until then" in text_of(post)]
        assert [post.thread for post in told] == ["100.1", "200.1"]
    async with worker(settings(tmp_path, **OVER)) as parent:
        parent.says("after a restart", "300.1")
        (await parent.run(0)).finish("Here too.", "session-4")
        await done(parent, "300.1")
        assert names(parent) == ["rehearsal"]
        await passes(parent, TWO_HOURS_S + 600)
        parent.says("who is it now?", "102.1", "100.1")
        run = await parent.run(1)
        assert names(parent) == ["rehearsal", "claude"]
        assert run.request.session_id == "session-1"
        assert "Green." in run.request.prompt


async def test_who_names_an_agent_gets_it_and_its_work_ends_the_detour(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, **OVER)) as parent:
        await meets_limit(parent)
        (await parent.run(1)).finish("Fixed.", "session-2")
        await done(parent, "100.1")
        parent.says("are you back?", "200.1", prefix="claude")
        (await parent.run(2)).finish("I am.", "session-3")
        await done(parent, "200.1")
        parent.says("go on", "300.1")
        await parent.run(3)
        assert names(parent) == ["claude", "rehearsal", "claude", "claude"]


async def test_an_agent_that_takes_over_with_a_session_of_its_own_gets_the_message(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, **OVER)) as parent:
        parent.says("hello", "100.1", prefix="rehearsal")
        (await parent.run(0)).finish("Hello.", "session-2")
        await done(parent, "100.1")
        parent.says("fix it", "101.1", "100.1")
        refused(await parent.run(1), TWO_HOURS_S, now_s(parent))
        run = await parent.run(2)
        assert run.request.session_id == "session-2"
        assert run.request.prompt.endswith("fix it")
        assert "Go on from where you stopped" not in run.request.prompt


async def test_when_the_second_meets_its_limit_too_it_waits(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, **OVER)) as parent:
        await meets_limit(parent)
        run = await parent.run(1)
        run.does(Started("session-2"), Finished(False, "Used up", "limit", resets_at_s=now_s(parent) + 3600))
        card = await parent.post_with("Used up")
        assert "Resumes automatically" in text_of(card)
        await passes(parent, 3600 + 120)
        await parent.run(2)
        assert names(parent) == ["claude", "rehearsal", "rehearsal"]


async def test_a_restart_between_the_two_loses_and_repeats_nothing(tmp_path: Path) -> None:
    told = settings(tmp_path, **OVER, parallel_turns=1)
    async with worker(told) as parent:
        await meets_limit(parent)
        await parent.post_with("at its usage limit")
        await parent.run(1)
    async with worker(told) as parent:
        # The second agent had begun: that it may go on is for a person to say, as for any run.
        question = await parent.post_with("machine stopped")
        assert parent.backend.runs == []
        press(parent, buttons(question)["Continue"])
        run = await parent.run(0)
        assert names(parent) == ["rehearsal"]
        run.finish("Fixed.", "session-2")
        await done(parent, "100.1")


@pytest.mark.parametrize(
    ("on_limit", "why"),
    [("agent kimi", "kimi cannot take over: install it"), ("agent claude", ""), ("wait", "")],
)
async def test_without_an_agent_that_can_it_waits(tmp_path: Path, on_limit: str, why: str) -> None:
    async with worker(settings(tmp_path, on_limit=on_limit)) as parent:
        await meets_limit(parent)
        card = await parent.post_with(LINE)
        assert "Resumes automatically" in text_of(card)
        assert ("cannot take over" in text_of(card)) == bool(why)
        assert why in text_of(card)
        await parent.clock.advance(60)
        assert names(parent) == ["claude"]


async def test_nobody_gets_an_agent_that_the_rules_deny_them(tmp_path: Path) -> None:
    async with worker(only(settings(tmp_path, **OVER), BEN, ("claude",))) as parent:
        parent.says("fix it", "100.1", user=BEN)
        refused(await parent.run(0), TWO_HOURS_S, now_s(parent))
        card = await parent.post_with(LINE)
        assert "rehearsal cannot take over: not everybody who asked may use it." in text_of(card)
        await meets_limit(parent, "200.1", number=1)
        (await parent.run(2)).finish("Fixed.", "session-2")
        await done(parent, "200.1")
        # The limit is known now, but not a way round the rules.
        parent.says("fix that too", "300.1", user=BEN)
        await parent.run(3)
        assert names(parent) == ["claude", "claude", "rehearsal", "claude"]


async def test_a_limit_without_an_end_is_handed_over_and_tried_again_each_time(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, **OVER)) as parent:
        parent.says("fix it", "100.1")
        (await parent.run(0)).does(
            Started("session-1"), Finished(False, "Credit balance is too low", "limit")
        )
        told = await parent.post_with("Credit balance is too low")
        assert "New messages try `claude` first." in text_of(told)
        (await parent.run(1)).finish("Fixed.", "session-2")
        await done(parent, "100.1")
        parent.says("and that", "200.1")
        await parent.run(2)
        assert names(parent) == ["claude", "rehearsal", "claude"]


async def asked(parent: Parent) -> Post:
    """A turn in the thread 100.1 that asks how to continue; its card."""
    await meets_limit(parent)
    card = await parent.post_with(LINE)
    await parent.until(lambda: parent.reactions("100.1") == ["raised_hand"], flow=True)
    return card


async def test_ask_does_nothing_before_somebody_says_how(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, on_limit="ask", default="claude")) as parent:
        card = await asked(parent)
        assert "The limit resets at 02:00 UTC on 01 January. Nothing resumes automatically." in text_of(card)
        assert list(buttons(card)) == ["Wait until 02:00 UTC", "Stop"]
        await parent.until(lambda: parent.said(Heartbeat)[-1].waiting == 1)
        await passes(parent, 660)
        reminder = await parent.post_with("Still waiting for you: say how to continue")
        assert reminder.mention == USER
        await passes(parent, TWO_HOURS_S + 600)
        assert len(parent.backend.runs) == 1


async def test_ask_and_wait_resumes_at_the_reset_also_after_a_restart(tmp_path: Path) -> None:
    told = settings(tmp_path, on_limit="ask")
    async with worker(told) as parent:
        card = await asked(parent)
    async with worker(told) as parent:
        await parent.until(lambda: any(beat.waiting == 1 for beat in parent.said(Heartbeat)))
        press(parent, buttons(card)["Wait until 02:00 UTC"])
        press(parent, buttons(card)["Wait until 02:00 UTC"], at="500.2")
        waits = await parent.until(
            lambda: [each for each in parent.updates if "Resumes automatically at 02:00" in text_of(each)]
        )
        assert list(buttons(waits[-1])) == ["Try now", "Drop"]
        await parent.until(lambda: parent.reactions("100.1") == ["hourglass_flowing_sand"], flow=True)
        await passes(parent, TWO_HOURS_S - 600)
        assert parent.backend.runs == []
        await passes(parent, 1200)
        run = await parent.run(0)
        assert run.request.session_id == "session-1"
        run.finish()
        await done(parent, "100.1")
        await passes(parent, TWO_HOURS_S)
        assert len(parent.backend.runs) == 1


async def test_ask_and_go_on_with_another_or_stop(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, on_limit="ask")) as parent:
        card = await asked(parent)
        turn_id = buttons(card)["Stop"][1]
        press(parent, ("codebutler.retry", f"{turn_id}:rehearsal"))
        run = await parent.run(1)
        assert names(parent)[-1] == "rehearsal"
        run.finish("Fixed.", "session-2")
        await done(parent, "100.1")
        assert any("▶ Continued on rehearsal." in text_of(each) for each in parent.updates)
        await meets_limit(parent, "200.1", number=2)
        last = await parent.until(
            lambda: [post for post in parent.posts if post.thread == "200.1" and buttons(post)], flow=True
        )
        press(parent, buttons(last[0])["Stop"], at="500.2")
        await parent.until(lambda: parent.reactions("200.1") == ["octagonal_sign"], flow=True)
        press(parent, buttons(last[0])["Wait until 02:00 UTC"], at="500.3")
        await passes(parent, TWO_HOURS_S + 600)
        assert len(parent.backend.runs) == 3


async def test_with_resuming_off_a_person_resumes(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, resume_at_reset=False)) as parent:
        card = await asked(parent)
        assert "Nothing resumes automatically. (`agent.resumeAtReset` is off.)" in text_of(card)
        assert list(buttons(card)) == ["Try now", "Stop"]
        await passes(parent, TWO_HOURS_S + 600)
        assert len(parent.backend.runs) == 1
        press(parent, buttons(card)["Try now"])
        run = await parent.run(1)
        assert run.request.session_id == "session-1"
        run.finish()
        await done(parent, "100.1")


async def test_an_overload_is_no_usage_limit(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, **OVER, resume_at_reset=False)) as parent:
        parent.says("fix it", "100.1")
        (await parent.run(0)).does(Started("session-1"), Finished(False, "overloaded", "overloaded"))
        card = await parent.post_with("overloaded")
        assert "Resumes automatically" in text_of(card)
        await parent.clock.advance(60)
        await parent.run(1)
        assert names(parent) == ["claude", "claude"]
