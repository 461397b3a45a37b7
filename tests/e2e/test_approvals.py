"""Leave in the thread, with the real Claude Code in `permissionMode: ask`.

| case | what happens |
|---|---|
| P01 | Allow runs exactly the command that the card shows; until then a raised hand and a call tell who is waited for |
| P02 | Deny with a reason, in the form that the button opens: nothing runs, and the reason reaches the model |
| P03 | a typed yes allows |
| P04 | a worker killed while it asks: the card says that nothing ran, a late click changes nothing |
| P05 | two questions of one call: one is answered by its button, of the other several options are ticked |
| P06 | in `permissionMode: plan` the plan is shown; keep planning, then approve; then it asks before it changes |
| P07 | two calls at once share a card, and one click allows both |
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from playwright.async_api import expect

from tests.browser import PATIENCE_MS, page_at
from tests.e2e.house import House, Message, house, whole_text
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import require

LEAVE = "codebutler.allow"


async def asking(built: House, repo: Path, mode: str = "ask") -> str:
    """A repository whose agent asks before each command; returns the channel."""
    require("bwrap")
    binary = require("claude")
    channel = await built.add_repo(
        repo,
        "sample",
        agent={"debounceSeconds": 0, "default": "claude"},
        claude={"binary": str(binary), "permissionMode": mode},
    )
    await built.supervise()
    return channel


def model_env(model: ModelServer) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-api03-not-a-real-key"}


async def card(built: House, channel: str, root: str, action_id: str = LEAVE) -> tuple[Message, str]:
    """The card in a thread that has such a button, and the button's value."""

    def look() -> tuple[Message, str] | None:
        for message in built.answers(channel, root):
            for block in message.get("blocks", []):
                for element in block.get("elements", []):
                    if element.get("action_id") == action_id:
                        return message, str(element["value"])
        return None

    return await built.until("the card", look)


def touch(repo: Path) -> Reply:
    """The model wants to run a command that leaves a trace."""
    return Reply("I need a file.", (Call("Bash", {"command": f"touch {repo}/trace && echo touched-it"}),))


async def test_p01_allow_runs_the_command(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await asking(built, git_repo)
        model.play(touch(git_repo), Reply("All done."))
        ts = await built.say(channel, "make a trace")
        message, value = await card(built, channel, ts)
        assert f"touch {git_repo}/trace" in message["text"]
        await built.until_status(lambda status: status["repos"][0]["turns"]["waiting"] == 1)
        assert message["text"].startswith("<@UYOU0000000> 🔐 Permission needed: `Bash`")
        await built.until("the raised hand", lambda: "raised_hand" in built.reactions(channel, ts))
        assert not (git_repo / "trace").exists()
        await built.click(channel, message["ts"], LEAVE, value)
        await built.answer(channel, ts, "All done.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert (git_repo / "trace").exists()
        assert "touched-it" in model.said()
        await built.answer(channel, ts, "✅ Allowed by")


async def test_p02_deny_with_a_reason(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await asking(built, git_repo)
        model.play(touch(git_repo), Reply("Then not."))
        ts = await built.say(channel, "make a trace")
        await card(built, channel, ts, "codebutler.deny_reason")
        async with page_at(built.workspace.url, width=390, height=780) as (page, errors):
            await page.locator(".replies").click()
            await page.get_by_role("button", name="Deny with a reason…").click()
            form = page.get_by_role("dialog", name="Deny with a reason")
            await form.get_by_label("Why not, or what instead?").fill("the disk is precious")
            await form.get_by_role("button", name="Deny", exact=True).click()
            denied = page.locator("#replies .message", has_text="🚫 Denied by you: the disk is precious")
            await expect(denied).to_be_visible(timeout=PATIENCE_MS)
            await expect(denied.get_by_role("button", name="Allow")).to_have_count(0)
            await expect(page.locator("#replies")).to_contain_text("Then not.", timeout=PATIENCE_MS)
            assert errors == []
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert "the disk is precious" in model.said()
        assert not (git_repo / "trace").exists()


async def test_p03_a_typed_yes_allows(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await asking(built, git_repo)
        model.play(touch(git_repo), Reply("All done."))
        ts = await built.say(channel, "make a trace")
        await card(built, channel, ts)
        yes = await built.say(channel, "yes", thread_ts=ts)
        await built.answer(channel, ts, "All done.")
        assert (git_repo / "trace").exists()
        assert await built.outcome(channel, yes) == "white_check_mark"
        assert len(model.requests) == 2


async def test_p04_a_worker_killed_while_it_asks(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await asking(built, git_repo)
        model.play(touch(git_repo))
        ts = await built.say(channel, "make a trace")
        message, value = await card(built, channel, ts)
        status = await built.until_status(lambda status: status["repos"][0]["turns"]["waiting"] == 1)
        os.kill(status["repos"][0]["worker"]["pid"], signal.SIGKILL)
        await card(built, channel, ts, "codebutler.retry")
        await built.until(
            "the card closed",
            lambda: "NOT run" in whole_text(built.message(channel, message["ts"])) or None,
        )
        await built.click(channel, message["ts"], LEAVE, value)
        await built.answer(channel, ts, "That card is closed")
        assert not (git_repo / "trace").exists()
        assert len(model.requests) == 1


async def test_p05_questions_are_answered_on_their_card(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await asking(built, git_repo)
        options = [{"label": "Blue", "description": "calm"}, {"label": "Green", "description": "fresh"}]
        colour = {"question": "Which colour?", "header": "Colour", "options": options, "multiSelect": False}
        places = [{"label": name, "description": ""} for name in ("Roof", "Door", "Fence")]
        parts = {"question": "Which parts?", "header": "Parts", "options": places, "multiSelect": True}
        model.play(Reply("", (Call("AskUserQuestion", {"questions": [colour, parts]}),)), Reply("Painted."))
        ts = await built.say(channel, "paint it")
        message, _ = await card(built, channel, ts, "codebutler.answer")
        rows = {row["elements"][0]["text"]["text"]: row for row in buttons(message)}
        assert list(rows) == ["Blue", "Green", "Done"]
        pressed = {"channel": channel, "message_ts": message["ts"], "action_id": "codebutler.answer"}
        person, click = built.workspace.workspace.person, built.workspace.interactions.click
        await click(person, {**pressed, "block_id": rows["Green"]["block_id"]})
        await built.until(
            "the first answer", lambda: ": Green" in built.message(channel, message["ts"])["text"] or None
        )
        rows = {
            row["elements"][0]["text"]["text"]: row for row in buttons(built.message(channel, message["ts"]))
        }
        assert list(rows) == ["Done"]
        question = rows["Done"]["elements"][0]["value"].partition(":")[0]
        ticked = {question: {"codebutler.pick": [f"{question}:0", f"{question}:2"]}}
        await click(person, {**pressed, "block_id": rows["Done"]["block_id"], "values": ticked})
        await built.answer(channel, ts, "Painted.")
        assert 'Which colour?\\"=\\"Green' in model.said()
        assert 'Which parts?\\"=\\"Roof, Fence' in model.said()


def buttons(message: Message) -> list[dict[str, Any]]:
    """The rows of a message that hold a button."""
    return [block for block in message["blocks"] if block.get("elements", [{}])[0].get("type") == "button"]


async def test_p06_a_plan_is_approved(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await asking(built, git_repo, "plan")
        plan = Reply("", (Call("ExitPlanMode", {"plan": "1. **Trace** it"}),))
        write = Reply("", (Call("Write", {"file_path": f"{git_repo}/trace", "content": "x"}),))
        model.play(plan, plan, write, Reply("All done."))
        ts = await built.say(channel, "make a trace")
        first, _ = await card(built, channel, ts)
        assert "1. *Trace* it" in first["text"]
        await built.say(channel, "no, think of the disk", thread_ts=ts)
        await model.seen(2)
        assert "think of the disk" in model.said()
        second, value = await built.until(
            "the plan again",
            lambda: next(iter(later_card(built, channel, ts, first["ts"])), None),
        )
        await built.click(channel, second["ts"], LEAVE, value)
        asked, value = await built.until(
            "leave for the file",
            lambda: next(iter(later_card(built, channel, ts, second["ts"])), None),
        )
        assert f"{git_repo}/trace" in asked["text"]
        assert not (git_repo / "trace").exists()
        await built.click(channel, asked["ts"], LEAVE, value)
        await built.answer(channel, ts, "All done.")
        assert (git_repo / "trace").read_text() == "x"


async def test_p07_two_calls_share_a_card(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await asking(built, git_repo)
        calls = tuple(Call("Read", {"file_path": f"/etc/{name}"}) for name in ("passwd", "group"))
        model.play(Reply("", calls), Reply("All done."))
        ts = await built.say(channel, "read both")
        together = await built.answer(channel, ts, "/etc/group")
        assert "/etc/passwd" in together["text"]
        assert "/etc/group" in together["text"]
        rows = [element for block in together["blocks"] for element in block.get("elements", [])]
        assert rows[-1]["text"]["text"] == "Allow all 2"
        block_id = together["blocks"][-1]["block_id"]
        pressed = {"channel": channel, "message_ts": together["ts"], "block_id": block_id, "action_id": LEAVE}
        await built.workspace.interactions.click(built.workspace.workspace.person, pressed)
        await built.answer(channel, ts, "All done.")
        assert await built.outcome(channel, ts) == "white_check_mark"


def later_card(built: House, channel: str, root: str, after: str) -> list[tuple[Message, str]]:
    """The cards below ``after`` that ask for leave, with the value of that button."""
    return [
        (message, str(element["value"]))
        for message in built.answers(channel, root, after)
        for block in message.get("blocks", [])
        for element in block.get("elements", [])
        if element.get("action_id") == LEAVE
    ]
