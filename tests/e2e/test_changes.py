"""What a run changed, as people meet it in the chat: the card, its checks, its buttons.

| case | what happens |
|---|---|
| V01 | a run changes a file: below its answer a card with the file, then what the checks say; *Diff* shows the lines,
    *Commit* makes one commit as the owner, a second press says so |
| V02 | a check fails: the card shows its last lines; *Undo* asks, and puts the file back |
| V03 | the worker is killed before, while or after the checks run: the card says so, and they ran once |
| V04 | the card and the dashboard link a page: a comment that is sent from there is a message in the thread, starts
    a run and stands in the audit log |
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from codebutler.platform.kill_points import VARIABLE
from tests.browser import PATIENCE_MS, page_at
from tests.e2e.house import House, Message, house, whole_text
from tests.e2e.test_dashboard import free_port
from tests.programs import require

QUICK = {"debounceSeconds": 0, "default": "rehearsal"}


def git(repo: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(repo), *arguments], capture_output=True, check=True)
    return done.stdout.decode().strip()


async def served(built: House, repo: Path, **config: Any) -> str:
    require("bwrap")
    git(repo, "config", "user.name", "Ana")
    git(repo, "config", "user.email", "ana@example.com")
    channel = await built.add_repo(repo, "sample", agent=QUICK, **config)
    await built.supervise()
    return channel


def actions(message: Message) -> dict[str, str]:
    """The values of its buttons, by action."""
    elements = [each for block in message.get("blocks", []) for each in block.get("elements", [])]
    return {each["action_id"]: each["value"] for each in elements if "action_id" in each}


async def card_with(built: House, channel: str, root: str, text: str) -> Message:
    """The card, once it says so."""
    return await built.until(
        f"a card with {text}",
        lambda: next(
            (
                each
                for each in built.answers(channel, root)
                if "📝" in whole_text(each) and text in whole_text(each)
            ),
            None,
        ),
    )


async def test_v01_a_card_its_checks_its_lines_and_a_commit(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample", cards=True) as built:
        check = {"name": "one is made", "command": "grep -qx one made.txt"}
        channel = await served(built, git_repo, checks={"commands": [check]})
        ref = await built.say(channel, "create made.txt with one")
        card = await card_with(built, channel, ref, "✅ `one is made` passed")
        assert "`made.txt` +1 −0" in whole_text(card)
        answers = built.answers(channel, ref)
        assert answers.index(card) == len(answers) - 1
        pressed = actions(card)
        await built.click(channel, card["ts"], "codebutler.diff", pressed["codebutler.diff"])
        assert "+one" in whole_text(await built.answer(channel, ref, "new file mode"))
        await built.click(channel, card["ts"], "codebutler.commit", pressed["codebutler.commit"])
        done = whole_text(await built.answer(channel, ref, "✅ Committed"))
        assert git(git_repo, "rev-parse", "--short=9", "HEAD") in done
        assert git(git_repo, "log", "-1", "--format=%an: %s") == "Ana: create made.txt with one"
        await built.click(channel, card["ts"], "codebutler.commit", pressed["codebutler.commit"])
        await built.answer(channel, ref, "already committed")


async def test_v02_a_check_that_fails_and_what_was_changed_is_put_back(
    tmp_path: Path, git_repo: Path
) -> None:
    async with house(tmp_path, "sample", cards=True) as built:
        check = {"name": "two", "command": "echo looking; grep -qx two made.txt"}
        channel = await served(built, git_repo, checks={"commands": [check], "repair": False})
        ref = await built.say(channel, "create made.txt with one")
        card = await card_with(built, channel, ref, "❌ `two` failed (exit code 1)")
        assert "looking" in whole_text(card)
        await built.click(channel, card["ts"], "codebutler.ask_undo", actions(card)["codebutler.ask_undo"])
        asked = await built.answer(channel, ref, "Undo “create made.txt with one”")
        await built.click(channel, asked["ts"], "codebutler.undo", actions(asked)["codebutler.undo"])
        await built.answer(channel, ref, "Undid changes to 1 file")
        assert not (git_repo / "made.txt").exists()


@pytest.mark.parametrize("point", ["checks.before", "checks.after"])
async def test_v03_a_worker_killed_around_its_checks_tells_the_truth(
    tmp_path: Path, git_repo: Path, point: str
) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    (plans / "worker:sample.plan").write_text(f"{point} 1\n")
    async with house(tmp_path, "sample", cards=True, extra_env={VARIABLE: str(plans)}) as built:
        (git_repo / ".gitignore").write_text("ran\n")
        git(git_repo, "add", ".gitignore")
        git(git_repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "ignore")
        channel = await served(built, git_repo, checks={"command": "echo ran >> ran"})
        ref = await built.say(channel, "create made.txt with one")
        card = await card_with(built, channel, ref, "The machine stopped while the checks ran")
        assert (plans / "worker:sample.plan").read_text() == ""
        ran = git_repo / "ran"
        times = len(ran.read_text().split()) if ran.exists() else 0
        assert times == (1 if point == "checks.after" else 0)
        assert len([each for each in built.answers(channel, ref) if "📝" in whole_text(each)]) == 1
        # A person may ask for them.
        await built.click(channel, card["ts"], "codebutler.checks", actions(card)["codebutler.checks"])
        await card_with(built, channel, ref, "passed in")
        assert len(ran.read_text().split()) == times + 1


async def test_v04_the_changes_are_read_and_commented_on_a_page(tmp_path: Path, git_repo: Path) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    async with house(tmp_path, "sample", cards=True) as built:
        config = built.home / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "dashboard": {"port": free_port()}}))
        channel = await served(built, git_repo)
        opened = json.loads(await built.run("dashboard", "--json"))
        ref = await built.say(channel, "create made.txt with one")
        card = await card_with(built, channel, ref, "`made.txt` +1 −0")
        link = re.search(rf"<({re.escape(opened['url'])}changes/sample/\w+)\|Review>", whole_text(card))
        assert link is not None
        async with page_at(opened["link"]) as (page, errors):
            await page.get_by_role("link", name="Changes: sample, create made.txt with one").click()
            await expect(page).to_have_url(link[1])
            await page.locator("tr.line", has_text="one").locator("td.num").nth(1).click()
            await page.keyboard.type("Why not two?")
            await page.keyboard.press("Control+Enter")
            await page.get_by_role("button", name="Send 1 comment").click()
            await expect(page.locator("#sent")).to_contain_text("Sent 1 comment.")
            assert errors == []
        said = await built.answer(channel, ref, "Comments on your changes:")
        assert "made.txt:1" in whole_text(said)
        assert "Why not two?" in whole_text(said)
        acts = [json.loads(line) for line in (built.home / "logs" / "audit.jsonl").read_text().splitlines()]
        (sent,) = [act for act in acts if "Why not two?" in act["text"] and act["decision"] == "allowed"]
        assert (sent["user"], sent["channel"], sent["thread"]) == ("operator", channel, ref)
        await built.answer(channel, ref, "I have received your comments.")
