"""What one allowed user cannot do to another, and a click cannot do at all."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from codebutler.config.schema import AuthorizationRule, AuthorizationSection, RepoSettings
from codebutler.domain.model import ButtonClicked, Prompt
from codebutler_worker.agents.backend import Finished, Started
from tests.events import clicked, deleted, edited
from tests.shown import blocks_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

OTHER = "U0BOB"


def ruled(repo: Path, *rules: tuple[str, str]) -> RepoSettings:
    """Settings with a rule per (user, prefix)."""
    granted = tuple(
        AuthorizationRule(channels=(CHANNEL,), users=(user,), allowed_prefixes=(prefix,))
        for user, prefix in rules
    )
    plain = settings(repo)
    config = structs.replace(plain.config, authorization=AuthorizationSection(rules=granted))
    return structs.replace(plain, config=config)


def click(user: str, value: str, *, channel: str = CHANNEL, number: int = 1) -> ButtonClicked:
    return clicked(
        channel=channel,
        user=user,
        message="9000.000001",
        action_id="codebutler.retry",
        value=value,
        press=f"500.{number}",
    )


async def at_its_limit(parent: Parent) -> str:
    """A turn of ours that met its limit; the value of its Continue button."""
    parent.says("do it all", "100.1")
    run = await parent.run(0)
    run.does(Started("session-1"), Finished(False, "The limit was met.", "max_turns"))
    asked = await parent.post_with("The limit was met.")
    return str(blocks_of(asked)[1]["elements"][0]["value"])


async def test_nobody_edits_anothers_words(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, debounce_s=3)) as parent:
        parent.says("tidy up", "100.1")
        edit = edited(channel=CHANNEL, ref="100.1", user=OTHER, text="delete it", edit="101.0")
        await parent.stored(parent.deliver(edit, Prompt(text="delete it")))
        assert (await parent.run(0)).request.prompt == "tidy up"


async def test_nobody_deletes_anothers_words(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, debounce_s=3)) as parent:
        parent.says("tidy up", "100.1")
        await parent.stored(parent.deliver(deleted(channel=CHANNEL, ref="100.1", user=OTHER)))
        assert (await parent.run(0)).request.prompt == "tidy up"


async def test_continue_needs_the_right_to_the_turns_agent(tmp_path: Path) -> None:
    async with worker(ruled(tmp_path, (USER, "claude"), (OTHER, "rehearsal"))) as parent:
        value = await at_its_limit(parent)
        parent.deliver(click(OTHER, value))
        await parent.post_with("not authorized to use `claude:`")
        assert len(parent.backend.runs) == 1
        parent.deliver(click(USER, value, number=2))
        assert (await parent.run(1)).request.session_id == "session-1"


async def test_a_forged_value_does_nothing(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        value = await at_its_limit(parent)
        await parent.stored(parent.deliver(click(USER, value, channel="C0OTHER")))
        await parent.stored(parent.deliver(click(USER, "../" + value, number=2)))
        await parent.stored(parent.deliver(click(USER, "", number=3)))
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 1
