"""Telegram from the command line, against a Bot API server: setup at a terminal and by options, add-repo, allow,
doctor."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from codebutler.config.resolve import VARIABLES
from tests.commands import ended
from tests.e2e.house import command
from tests.ordinary import give_repository_away as give_away
from tests.screen import ENTER, Screen, screen
from tests.telegram.server import ANA, BEN, GROUP, TOKEN, BotServer, Fault

STRANGE = f"{TOKEN[:-1]}x"


class Desk:
    """Somebody at a terminal, and their Telegram."""

    def __init__(self, server: BotServer, home: Path, env: dict[str, str]) -> None:
        self.server = server
        self.home = home
        self.env = env

    async def run(self, *arguments: str) -> tuple[int, str]:
        """One command to its end: its exit code and all it wrote."""
        return await ended(*command(*arguments), env=self.env)

    def saved(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "config.json").read_text())
        return found


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    foreign = {*VARIABLES, "DISPLAY", "WAYLAND_DISPLAY"}
    env = {name: value for name, value in os.environ.items() if name not in foreign}
    async with BotServer() as server:
        env |= {"CODEBUTLER_HOME": str(home), "TERM": "xterm", "TELEGRAM_API_URL": server.url}
        yield Desk(server, home, env)


@pytest.fixture
async def connected(desk: Desk) -> Desk:
    code, told = await desk.run("setup", "--telegram-token", TOKEN, "--telegram-user", str(ANA))
    assert (code, "Connected to Telegram as @butler_bot" in told) == (0, True), told
    return desk


async def answers(shown: Screen, question: str, answer: str) -> None:
    await shown.until(question)
    shown.type(answer + ENTER)


async def test_the_owner_is_who_opens_the_link_and_is_confirmed_at_the_terminal(desk: Desk) -> None:
    async with screen(command("setup"), desk.env, columns=140) as shown:
        await answers(shown, "Slack, Telegram or both? [slack]", "telegram")
        await answers(shown, "Telegram bot token:", "hello")
        await shown.until("expected a bot token")
        await answers(shown, "Telegram bot token:", STRANGE)
        await shown.until("does not accept this token")
        await answers(shown, "Telegram bot token:", TOKEN)
        await shown.until("Connected as @butler_bot")
        await shown.until("press Start")
        link = re.search(r"t\.me/butler_bot\?start=(\S+)", shown.text)
        assert link is not None
        desk.server.say(ANA, "/start somethingelse")
        desk.server.say(ANA, f"/start {link[1]}")
        await answers(shown, f"Is that you: Ana ({ANA})? (yes/no) [yes]", "")
        await shown.until(f"{ANA} may use the agents")
        await answers(shown, "People (Enter when done, 1 so far)", "")
        await answers(shown, "OpenAI API key", "")
        await answers(shown, "Kimi API key", "")
        await shown.until("codebutler add-repo PATH --telegram CHAT")
        assert TOKEN not in shown.text
    assert desk.saved() == {"telegram": {"botToken": TOKEN, "allowedUsers": [ANA]}}
    assert desk.server.telegram.confirmed == [], "the supervisor gets every message"


async def test_who_is_not_confirmed_is_not_let_in(desk: Desk) -> None:
    async with screen(command("setup"), desk.env, columns=140) as shown:
        await answers(shown, "Slack, Telegram or both? [slack]", "telegram")
        await answers(shown, "Telegram bot token:", TOKEN)
        await shown.until("press Start")
        link = re.search(r"\?start=(\S+)", shown.text)
        assert link is not None
        desk.server.say(ANA, f"/start {link[1]}")
        await answers(shown, "Is that you", "no")
        await answers(shown, "People (Enter when done):", "@ana")
        await shown.until("@ana is not a Telegram number")
        await answers(shown, "People (Enter when done):", "")
        await answers(shown, "OpenAI API key", "")
        await answers(shown, "Kimi API key", "")
        await shown.until("Nobody is allowed yet")
    assert desk.saved() == {"telegram": {"botToken": TOKEN}}


async def test_another_programs_webhook_goes_only_when_asked(desk: Desk) -> None:
    desk.server.telegram.webhook = "https://elsewhere.example/hook"
    for answer, left in (("", "https://elsewhere.example/hook"), ("yes", "")):
        async with screen(command("setup"), desk.env, columns=140) as shown:
            await answers(shown, "Slack, Telegram or both?", "telegram")
            await answers(shown, "Telegram bot token", TOKEN)
            await answers(shown, "Remove it? (yes/no) [no]", answer)
            await answers(shown, "People", str(ANA))
            await answers(shown, "People (Enter when done, 1 so far)", "")
            await answers(shown, "OpenAI API key", "")
            await answers(shown, "Kimi API key", "")
            await shown.until("Next:")
        assert desk.server.telegram.webhook == left


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--telegram-token", STRANGE), "Telegram refuses"),
        (("--telegram-token", "hello"), r"telegram.botToken: expected a bot token"),
        (("--telegram-user", "111"), "no Telegram bot token: pass --telegram-token"),
        (("--telegram-token", TOKEN, "--telegram-user", "-5"), "-5 is not a Telegram number"),
    ],
)
async def test_a_wrong_option_writes_nothing(desk: Desk, options: tuple[str, ...], told: str) -> None:
    code, said = await desk.run("setup", *options)
    assert code != 0
    assert told in said
    assert STRANGE not in said
    assert not (desk.home / "config.json").exists()


async def test_people_are_allowed_and_denied_by_number(connected: Desk) -> None:
    assert (await connected.run("allow", str(BEN)))[0] == 0
    assert connected.saved()["telegram"]["allowedUsers"] == [ANA, BEN]
    _, listed = await connected.run("allow", "--json")
    assert [one["id"] for one in json.loads(listed)["users"]] == [f"tg:{ANA}", f"tg:{BEN}"]
    assert (await connected.run("deny", f"tg:{ANA}"))[0] == 0
    assert connected.saved()["telegram"]["allowedUsers"] == [BEN]
    code, told = await connected.run("deny", str(ANA))
    assert (code, "is not on the list" in told) == (1, True)


async def test_a_repository_gets_a_group_of_its_own(connected: Desk, git_repo: Path, tmp_path: Path) -> None:
    code, told = await connected.run(
        "add-repo", str(git_repo), "--telegram", str(GROUP), "--agent", "rehearsal"
    )
    assert code == 0, told
    assert f"Registered repo: shop (tg:{GROUP})" in told
    own = json.loads((git_repo / ".codebutler" / "config.json").read_text())
    assert own["telegram"] == {"chatId": GROUP, "chatName": "shop"}
    _, listed = await connected.run("repos")
    assert listed.split()[4:7] == ["repo", "shop", "trusted"]
    other = shutil.copytree(git_repo, tmp_path / "other", ignore=shutil.ignore_patterns(".codebutler"))
    give_away(other)
    code, told = await connected.run("add-repo", str(other), "--telegram", str(GROUP))
    assert (code, "already belongs to repo" in told) == (1, True), told
    assert not (other / ".codebutler").exists()
    _, listed = await connected.run("repos", "--json")
    assert [each["channel_id"] for each in json.loads(listed)] == [f"tg:{GROUP}"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--telegram", "-1009"), "cannot see the chat -1009: add it to the group"),
        (("--telegram", "shop"), "shop is not a Telegram chat"),
        (("--telegram", str(GROUP), "--channel", "C0123456"), "--telegram cannot be combined with"),
        ((), "pass --telegram CHAT"),
    ],
)
async def test_a_chat_that_cannot_be_used_changes_nothing(
    connected: Desk, git_repo: Path, options: tuple[str, ...], told: str
) -> None:
    code, said = await connected.run("add-repo", str(git_repo), *options)
    assert code != 0
    assert told in " ".join(re.sub(r"[│╭╮╰╯─]", " ", said).split())
    assert not (git_repo / ".codebutler").exists()


async def test_doctor_says_what_is_wrong_with_telegram(connected: Desk, git_repo: Path) -> None:
    await connected.run("add-repo", str(git_repo), "--telegram", str(GROUP), "--agent", "rehearsal")
    connected.server.telegram.webhook = "https://elsewhere.example/hook"
    connected.server.telegram.chats[GROUP].is_closed = "Forbidden: bot was kicked from the supergroup chat"
    _, told = await connected.run("doctor", "--json")
    found = {each["subject"]: each for each in json.loads(told)["findings"] if each["area"] != "home"}
    assert (found["bot token"]["level"], found["bot token"]["text"]) == ("ok", "@butler_bot")
    assert found["messages"]["level"] == "FAIL"
    assert found["allowed users"]["level"] == "ok"
    assert TOKEN not in told
    connected.server.token = STRANGE
    _, told = await connected.run("doctor", "--json")
    (broken,) = [each for each in json.loads(told)["findings"] if each["area"] == "telegram"]
    assert (broken["level"], "Telegram refuses" in broken["text"]) == ("FAIL", True)


async def test_the_group_is_the_one_into_which_somebody_brings_the_bot(
    connected: Desk, git_repo: Path
) -> None:
    async with screen(command("add-repo", str(git_repo)), connected.env, columns=140) as shown:
        await answers(shown, "Group:", "-1009")
        await shown.until("cannot see the chat -1009")
        link = re.search(r"t\.me/butler_bot\?startgroup=([^&\s]+)&admin=manage_topics", shown.text)
        assert link is not None
        connected.server.say(GROUP, "/start somethingelse")
        connected.server.say(ANA, f"/start {link[1]}")
        connected.server.say(GROUP, f"/start@butler_bot {link[1]}")
        await answers(shown, f"Is it shop ({GROUP})? (yes/no) [yes]", "")
        await shown.until(f"Registered repo: shop (tg:{GROUP})")
    assert connected.server.telegram.confirmed == [], "the supervisor gets every message"


async def test_where_a_supervisor_takes_the_messages_the_bot_tells_the_number(
    connected: Desk, git_repo: Path
) -> None:
    words = "Conflict: terminated by other getUpdates request"
    connected.server.faults.append(Fault("getUpdates", "refused", words, 409, times=99))
    async with screen(command("add-repo", str(git_repo)), connected.env, columns=140) as shown:
        await shown.until("write in the group: the bot answers with the command to run")
        await answers(shown, "Group:", str(GROUP))
        await shown.until(f"Registered repo: shop (tg:{GROUP})")


async def test_where_both_are_set_up_add_repo_asks_which(connected: Desk, git_repo: Path) -> None:
    config = connected.saved() | {"slack": {"botToken": "xoxb-1-2-abc", "appToken": "xapp-1-abc"}}
    (connected.home / "config.json").write_text(json.dumps(config))
    async with screen(command("add-repo", str(git_repo)), connected.env, columns=140) as shown:
        await answers(shown, "Slack or Telegram? [slack]", "matrix")
        await shown.until("Answer with one of slack, telegram.")
        await answers(shown, "Slack or Telegram? [slack]", "telegram")
        await answers(shown, "Group:", str(GROUP))
        await shown.until(f"Registered repo: shop (tg:{GROUP})")
