"""Whoever says a command is told once how it ended, when it is answered; none gets a mark for it."""

from __future__ import annotations

from pathlib import Path

from codebutler.domain.model import OPERATOR, Command, Post, React, TurnOutcome
from codebutler.protocol.messages import Send, TurnEnded, TurnStarted
from tests.events import posted
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker


def says(parent: Parent, text: str, ts: str, user: str = OPERATOR) -> None:
    name, _, argument = text.removeprefix("!").partition(" ")
    event = posted(channel=CHANNEL, ref=ts, user=user, text=text)
    parent.deliver(event, Command(name=name, argument=argument))


async def ended(parent: Parent, ts: str) -> TurnOutcome:
    """How the message ended; all that was said before is there by then."""
    (told,) = await parent.until(
        lambda: [each for each in parent.said(TurnEnded) if each.messages == (ts,)], flow=True
    )
    before = parent.heard[: parent.heard.index(told)]
    said = [each.operation for each in before if isinstance(each, Send)]
    assert [each for each in said if isinstance(each, Post)][-1].thread == ts
    return told.outcome


async def test_a_command_has_its_outcome_below_its_answer(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        says(parent, "!ping", "100.1", USER)
        assert await ended(parent, "100.1") == "done"
        says(parent, "!pong", "100.2")
        assert await ended(parent, "100.2") == "refused"
        assert not [each for each in parent.operations if isinstance(each, React)]


async def test_what_has_to_be_looked_up_has_it_when_all_of_it_is_said(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        says(parent, "!skills", "100.1")
        assert await ended(parent, "100.1") == "done"
        says(parent, "!diff", "100.2")
        assert await ended(parent, "100.2") == "failed"
        assert "run `git init`" in text_of(parent.posts[-1])


async def test_a_skill_has_it_when_its_run_has_ended(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        says(parent, "!skills review-diff the last commit", "100.1")
        run = await parent.run(0)
        assert parent.said(TurnStarted)[-1].messages == ("100.1",)
        assert not parent.said(TurnEnded)
        run.finish("Ready.")
        assert await ended(parent, "100.1") == "done"
