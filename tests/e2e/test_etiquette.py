"""Manners in the workspace.

| case | what happens |
|---|---|
| M01 | the channel is archived while a turn runs: told in status and App Home, the answer comes when it is back |
| M02 | the app is taken out of the channel and invited again: nothing is lost; a rename changes nothing |
"""

from __future__ import annotations

from pathlib import Path

from tests.e2e.house import House, house, whole_text
from tests.e2e.test_apphome import shown
from tests.e2e.test_matrix import rehearsal


def call(built: House, method: str, **params: object) -> None:
    built.workspace.call(method, built.workspace.user_token, **params)


async def test_m01_an_archived_channel(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        person = built.workspace.workspace.person
        built.workspace.dialogs.open_home(person, {"tab": "home"})
        ts = await built.say(channel, "wait 2 seconds")
        await built.until("the turn at work", lambda: "eyes" in built.reactions(channel, ts) or None)
        call(built, "conversations.archive", channel=channel)
        status = await built.until_status(lambda status: status["repos"][0]["problem"] != "")
        assert "archived: unarchive it in Slack" in status["repos"][0]["problem"]
        await built.until("trouble in the home", lambda: "archived" in shown(built, person.id) or None)
        call(built, "conversations.unarchive", channel=channel)
        assert await built.outcome(channel, ts) == "white_check_mark"
        answers = [whole_text(message) for message in built.answers(channel, ts)]
        assert sum("I waited 2 seconds" in text for text in answers) == 1, answers
        await built.until_status(lambda status: status["repos"][0]["problem"] == "")


async def test_m02_taken_out_renamed_and_invited_again(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        bot = built.workspace.workspace.bot.id
        ts = await built.say(channel, "wait 2 seconds")
        await built.until("the turn at work", lambda: "eyes" in built.reactions(channel, ts) or None)
        call(built, "conversations.kick", channel=channel, user=bot)
        status = await built.until_status(lambda status: status["repos"][0]["problem"] != "")
        assert "/invite @CodeButler" in status["repos"][0]["problem"]
        call(built, "conversations.rename", channel=channel, name="renamed")
        call(built, "conversations.invite", channel=channel, users=bot)
        assert await built.outcome(channel, ts) == "white_check_mark"
        again = await built.say(channel, "list the files")
        await built.answer(channel, again, "app.py")
