"""A turn that waits for a person does not look like one that works, and nobody is left to forget it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import AuthorizationRule, AuthorizationSection
from codebutler.domain.model import Post
from codebutler.protocol.messages import Doing, Heartbeat, Send, TurnEnded
from codebutler_worker.agents.backend import Approval, Question, Started, Text
from tests.events import clicked
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, Run, settings, worker

ASKED = Approval("req-1", "Bash", "make", {"command": "make"})
WHICH = Question("req-2#0", "Which?", ("A", "B"))
STILL = "✋ Still waiting for"
DAY_S = 86_400.0


async def asks(parent: Parent, *asked: Approval | Question) -> Run:
    """A turn in thread 100.1, of two messages, that has asked."""
    parent.says("clean up", "100.1")
    run = await parent.run(0)
    run.does(Started("session-1"), *asked)
    await parent.until(lambda: parent.said(Heartbeat)[-1].waiting == 1)
    return run


async def allow(parent: Parent) -> None:
    card = await parent.post_with("Permission needed")
    value = blocks_of(card)[-1]["elements"][0]["value"]
    parent.deliver(
        clicked(
            channel=CHANNEL,
            user=USER,
            message="9000.000001",
            action_id="codebutler.allow",
            value=value,
            press="500.1",
            thread="100.1",
        )
    )
    await parent.until(lambda: parent.backend.answers)


async def waiting(parent: Parent, number: int) -> None:
    """So many turns wait for people, as far as the supervisor is told: it lets no such worker sleep."""
    await parent.until(lambda: [beat.waiting for beat in parent.said(Heartbeat)[-1:]] == [number], flow=True)


def reminders(parent: Parent) -> list[Post]:
    return [post for post in parent.posts if text_of(post).startswith(STILL)]


async def after(parent: Parent, seconds: float) -> None:
    """Let the time pass, in steps as the worker looks at it."""
    for _ in range(int(seconds // 50)):
        await parent.clock.advance(50)
        await parent.until(lambda: True)


async def test_who_asked_is_called_and_a_raised_hand_shows_it_until_it_is_decided(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal")) as parent:
        run = await asks(parent, ASKED)
        assert (await parent.post_with("Permission needed")).mention == USER
        await parent.until(lambda: sorted(parent.reactions("100.1")) == ["eyes", "raised_hand"], flow=True)
        await parent.until(
            lambda: (
                parent.updates and "✋ claude is waiting for your approval" in text_of(parent.updates[-1])
            ),
            flow=True,
        )
        await parent.until(lambda: parent.said(Doing)[-1].text == "is waiting for your approval", flow=True)
        await allow(parent)
        await parent.until(lambda: parent.reactions("100.1") == ["eyes"], flow=True)
        await parent.until(lambda: parent.said(Doing)[-1].text == "is working", flow=True)
        run.does(WHICH)
        await parent.until(lambda: parent.said(Doing)[-1].text == "is waiting for your answer", flow=True)
        assert (await parent.post_with("Which?")).mention == USER
        await parent.until(lambda: sorted(parent.reactions("100.1")) == ["eyes", "raised_hand"], flow=True)
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)


async def test_the_status_comes_after_the_card_which_would_end_it(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("clean up", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"))
        await parent.until(lambda: parent.said(Doing), flow=True)
        await parent.clock.advance(30)
        parent.withheld = (Post,)
        run.does(ASKED)
        await parent.post_with("Permission needed")
        await parent.clock.advance(30)
        assert {doing.text for doing in parent.said(Doing)} == {"is working"}
        parent.withheld = ()
        for send in parent.said(Send):
            parent.take(send)
        await parent.until(lambda: parent.said(Doing)[-1].text == "is waiting for your approval", flow=True)


async def test_two_reminders_are_sent_and_nothing_expires_by_itself(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
        await after(parent, 500)
        assert reminders(parent) == []
        await after(parent, 200)
        first = await parent.post_with(f"{STILL} your approval: <https://slack.com/archives/{CHANNEL}/p9000")
        assert (first.mention, first.thread) == (USER, "100.1")
        await after(parent, 3600)
        await parent.until(lambda: len(reminders(parent)) == 2)
        await after(parent, DAY_S / 4)
        assert len(reminders(parent)) == 2
        assert parent.backend.answers == []
        await allow(parent)
        assert parent.backend.answers[0][1].allow


PLAN = Approval("req-3", "ExitPlanMode", "", {"plan": "1. look"})


@pytest.mark.parametrize(
    ("asked", "card", "what"),
    [(ASKED, "Permission needed", "approval"), (WHICH, "Which?", "answer"), (PLAN, "1. look", "approval")],
)
async def test_every_card_calls_who_asked_reminds_twice_and_waits(
    tmp_path: Path, asked: Approval | Question, card: str, what: str
) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, asked)
        assert (await parent.post_with(card)).mention == USER
        await after(parent, 650)
        assert (await parent.post_with(f"{STILL} your {what}")).mention == USER
        await after(parent, 3600)
        await parent.until(lambda: [post.mention for post in reminders(parent)] == [USER, USER])
        await after(parent, DAY_S / 4)
        assert len(reminders(parent)) == 2
        assert parent.backend.answers == []


async def test_a_question_in_passing_calls_who_asked(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("paint it", "100.1")
        envelope = "<<<SLACK:question>>>Which colour?\n\n- Blue\n- Green<<<END_SLACK>>>"
        (await parent.run(0)).does(Started("session-1"), Text(envelope))
        assert (await parent.post_with("Which colour?")).mention == USER


@pytest.mark.parametrize(
    ("asked", "card", "words"),
    [(ASKED, "Permission needed", "yes"), (WHICH, "Which?", "the first"), (PLAN, "1. look", "no, not so")],
)
async def test_who_may_not_decide_is_called_and_told_why(
    tmp_path: Path, asked: Approval | Question, card: str, words: str
) -> None:
    """By a press of the card's first button, and by words below it."""
    given = settings(tmp_path)
    rule = AuthorizationRule(channels=(CHANNEL,), users=(USER,), allowed_prefixes=("claude",))
    other = AuthorizationRule(channels=(CHANNEL,), users=("U0BEN",), allowed_prefixes=("kimi",))
    ruled = msgspec.structs.replace(given.config, authorization=AuthorizationSection(rules=(rule, other)))
    async with worker(msgspec.structs.replace(given, config=ruled)) as parent:
        await asks(parent, asked)
        post = await parent.post_with(card)
        button = blocks_of(post)[-1]["elements"][0]
        parent.deliver(
            clicked(
                channel=CHANNEL,
                user="U0BEN",
                message="9000.000001",
                action_id=button["action_id"],
                value=button["value"],
                press="500.1",
                thread="100.1",
            )
        )

        def told() -> list[str]:
            return [each.mention for each in parent.posts if "You are not authorized" in text_of(each)]

        await parent.until(lambda: told() == ["U0BEN"], flow=True)
        parent.says(words, "9999.1", "100.1", user="U0BEN")
        await parent.until(lambda: told() == ["U0BEN", "U0BEN"], flow=True)
        await parent.until(
            lambda: any(
                "9999.1" in end.messages and end.outcome == "refused" for end in parent.said(TurnEnded)
            ),
            flow=True,
        )
        assert parent.backend.answers == []


async def test_what_is_decided_is_not_reminded_of(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
        await allow(parent)
        await after(parent, 4000)
        assert reminders(parent) == []


async def test_an_interrupted_turn_is_reminded_of_across_restarts_by_a_worker_that_stays_awake(
    tmp_path: Path,
) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
    async with worker(settings(tmp_path)) as parent:
        assert (await parent.post_with("The machine stopped while I was working")).mention == USER
        await waiting(parent, 1)
        await after(parent, 650)
        assert (await parent.post_with(f"{STILL} you: continue or drop it")).mention == USER
    async with worker(settings(tmp_path)) as parent:
        await waiting(parent, 1)
        await after(parent, 3500)
        assert reminders(parent) == []
        await after(parent, 200)
        await parent.until(lambda: len(reminders(parent)) == 1, flow=True)
        await waiting(parent, 0)
    async with worker(settings(tmp_path)) as parent:
        await after(parent, 700)
        assert reminders(parent) == []
