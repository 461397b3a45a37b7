"""A message that is edited after its run has begun: what was answered stands, and it can be asked again, once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from codebutler.config.schema import AuthorizationRule, AuthorizationSection, RepoSettings
from codebutler.domain.model import Command, Prompt
from codebutler_worker.agents.backend import Started
from tests.events import clicked, edited
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

ASK_AGAIN = "codebutler.ask_again"


def edits(parent: Parent, text: str, number: int, *, user: str = USER, prefix: str | None = None) -> int:
    event = edited(channel=CHANNEL, ref="100.1", user=user, text=text, edit=f"{200 + number}.0")
    return parent.deliver(event, Prompt(text=text, prefix=prefix))


def offers(parent: Parent) -> list[str]:
    """The values of the buttons that offer to ask again."""
    return [
        element["value"]
        for post in parent.posts
        for block in blocks_of(post)
        for element in block.get("elements", ())
        if element["action_id"] == ASK_AGAIN
    ]


def press(parent: Parent, value: str, number: int, user: str = USER) -> int:
    return parent.deliver(
        clicked(
            channel=CHANNEL,
            user=user,
            message="9000.9",
            action_id=ASK_AGAIN,
            value=value,
            press=f"{300 + number}.0",
            thread="100.1",
        )
    )


async def answered(parent: Parent, number: int = 0, text: str = "Done.") -> str:
    """The run's prompt."""
    run = await parent.run(number)
    run.finish(text)
    await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
    return run.request.prompt


async def test_the_answer_stands_and_the_edited_text_is_asked_once_also_after_a_restart(
    tmp_path: Path,
) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("add 1 and 1", "100.1")
        assert await answered(parent) == "add 1 and 1"
        edits(parent, "add 1 and 2", 1)
        await parent.post_with("The answer is for the original text")
        await parent.stored(edits(parent, "add 2 and 2", 2))
        [value] = offers(parent)
        assert len(parent.backend.runs) == 1
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(press(parent, value, 1))
        assert await answered(parent) == "add 2 and 2"
        assert "Asked again" in text_of(parent.updates[-1])
        await parent.stored(press(parent, value, 2))
        await parent.post_with("You have already asked again")
        edits(parent, "add 3 and 3", 3)
        await parent.post_with("The answer is for the original text")
        assert offers(parent) != [value]
        assert len(parent.backend.runs) == 1


async def test_what_changes_nothing_or_is_somebody_elses_offers_nothing(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("add 1 and 1", "100.1")
        await answered(parent)
        edits(parent, "add 1 and 1", 1)
        edits(parent, "", 2)
        await parent.stored(edits(parent, "rm -rf", 3, user="U0BOB"))
        assert offers(parent) == []
        event = edited(channel=CHANNEL, ref="100.1", user=USER, text="!status", edit="209.0")
        await parent.stored(parent.deliver(event, Command(name="status", argument="")))
        await parent.post_with("Send the command as a new message")
        assert offers(parent) == []


async def test_while_it_runs_the_edit_waits_its_turn(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("add 1 and 1", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"))
        edits(parent, "add 2 and 2", 1)
        await parent.post_with("This run continues with the original text")
        [value] = offers(parent)
        await parent.stored(press(parent, value, 1))
        await parent.until(lambda: parent.reactions("100.1") == ["hourglass_flowing_sand"], flow=True)
        run.finish("2")
        assert (await parent.run(1)).request.prompt == "add 2 and 2"
        parent.backend.runs[1].finish("4")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)


def ruled(repo: Path) -> RepoSettings:
    rule = AuthorizationRule(channels=(CHANNEL,), users=(USER,), allowed_prefixes=("claude", "run"))
    section = AuthorizationSection(rules=(rule,), blocklist=("rm",))
    plain = settings(repo)
    return msgspec.structs.replace(plain, config=msgspec.structs.replace(plain.config, authorization=section))


async def test_it_is_authorised_like_any_message(tmp_path: Path) -> None:
    async with worker(ruled(tmp_path)) as parent:
        parent.says("add 1 and 1", "100.1")
        await answered(parent)
        await parent.stored(edits(parent, "add 2 and 2", 1))
        [value] = offers(parent)
        press(parent, value, 1, user="U0BOB")
        await parent.post_with("You are not authorized to use `claude:` here")
        # The list may have grown since the edit was let in.
        await parent.stored(edits(parent, "rm -r .", 2, prefix="run"))
        press(parent, value, 2)
        await parent.post_with("That command is on the blocklist; it was not run.")
        await parent.stored(press(parent, "of another channel", 3))
        assert len(parent.backend.runs) == 1
        await parent.stored(edits(parent, "add 3 and 3", 3))
        press(parent, value, 4)
        assert (await parent.run(1)).request.prompt == "add 3 and 3"
