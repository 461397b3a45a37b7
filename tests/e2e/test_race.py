"""A race as people meet it: two agents, one card, a pick.

| case | what happens |
|---|---|
| R01 | `race: …`: one card compares both and their checks, *Diff* shows the lines, *Pick* merges one |
| R02 | the worker is killed with SIGKILL at each step: the race is neither lost nor run twice |
| R03 | the real Claude Code and Kimi Code: the picked one's session goes on in the thread, after a restart too |
| R04 | the same in Telegram |
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codebutler.platform.kill_points import VARIABLE
from tests.e2e.house import House, Message, house, whole_text
from tests.e2e.test_approvals import model_env
from tests.e2e.test_changes import QUICK, git
from tests.e2e.test_telegram import talk
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import path_with_node, require
from tests.telegram.server import GROUP

SCRIBE = {
    "prefix": "scribe",
    "binary": "/usr/bin/python3",
    "args": ["-c", "open('made.txt', 'w').write('two\\n'); print('Wrote two.')", "-"],
    "mode": "headless",
}
CHECKS = {"commands": [{"name": "it is one", "command": "grep -qx one made.txt"}]}
PICK, DIFF = "codebutler.pick_race", "codebutler.diff"


async def served(built: House, repo: Path) -> str:
    require("bwrap")
    git(repo, "config", "user.name", "Ana")
    git(repo, "config", "user.email", "ana@example.com")
    config = {"agent": QUICK, "commands": [SCRIBE], "checks": CHECKS}
    channel = await built.add_repo(repo, "sample", **config)
    await built.supervise()
    return channel


def buttons(message: Message) -> dict[str, dict[str, str]]:
    """What a click on each of its buttons tells, by label."""
    found = {}
    for block in message.get("blocks", []):
        for each in block.get("elements", []):
            if "action_id" in each:
                told = {key: each[key] for key in ("action_id", "value")}
                found[each["text"]["text"]] = {**told, "block_id": block["block_id"]}
    return found


async def card_with(built: House, channel: str, root: str, text: str) -> Message:
    """The card, once it says so."""

    def look() -> Message | None:
        said = (each for each in built.answers(channel, root) if "*1. " in whole_text(each))
        return next((each for each in said if text in whole_text(each)), None)

    return await built.until(f"a card with {text}", look)


async def press(built: House, channel: str, card: Message, label: str) -> None:
    told = {"channel": channel, "message_ts": card["ts"], **buttons(card)[label]}
    await built.workspace.interactions.click(built.workspace.workspace.person, told)


async def test_r01_two_agents_one_card_one_pick(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample", cards=True) as built:
        channel = await served(built, git_repo)
        ref = await built.say(channel, "race: create made.txt with one")
        card = await card_with(built, channel, ref, "Pick one")
        assert await built.outcome(channel, ref) == "white_check_mark"
        text = whole_text(card)
        assert text.index("`rehearsal`") < text.index("✅ `it is one` passed")
        # The answers are shown as words, in one line each.
        assert "> Wrote made.txt: @@ -0,0 +1 @@ +one I am" in text
        progress = next(each for each in built.answers(channel, ref) if "have finished" in whole_text(each))
        assert "Running" not in whole_text(progress)
        assert text.index("`scribe`") < text.index("❌ `it is one` failed (exit code 1)")
        assert str(card["text"]).count("`made.txt` +1 −0") == 2
        assert "Wrote two." in text
        assert not (git_repo / "made.txt").exists()
        # What stands for the answers is the card: it comes last, after a line for the race and one for each agent.
        said = built.answers(channel, ref)
        assert said.index(card) == len(said) - 1
        assert sum("📝" in whole_text(each) or "🌿" in whole_text(each) for each in said) == 0
        await press(built, channel, card, "Diff scribe")
        assert "+two" in whole_text(await built.answer(channel, ref, "new file mode"))
        await press(built, channel, card, "Pick scribe")
        decided = whole_text(await card_with(built, channel, ref, "Removed the work of `rehearsal`"))
        assert "picked `scribe`" in decided
        assert (git_repo / "made.txt").read_text() == "two\n"
        assert git(git_repo, "log", "-1", "--format=%an: %s") == "Ana: create made.txt with one"
        assert git(git_repo, "worktree", "list").count("\n") == 0


@pytest.mark.parametrize(
    "points",
    [
        ("spawn.before 1",),
        ("result.after 1",),
        ("race.checked 1", "race.checked 1"),
        ("race.merged 1",),
        ("race.cleared 1",),
    ],
    ids=lambda points: points[0].partition(" ")[0],
)
async def test_r02_a_kill_at_each_step_loses_nothing_and_repeats_nothing(
    tmp_path: Path, git_repo: Path, points: tuple[str, ...]
) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    plan = plans / "worker:sample.plan"
    plan.write_text("".join(f"{point}\n" for point in points))
    async with house(tmp_path, "sample", cards=True, extra_env={VARIABLE: str(plans)}) as built:
        channel = await served(built, git_repo)
        ref = await built.say(channel, "race: create made.txt with one")
        await continued(built, channel, ref)
        card = await card_with(built, channel, ref, "Pick one")
        await press(built, channel, card, "Pick rehearsal")
        await card_with(built, channel, ref, "picked `rehearsal`")
        await built.until("both are removed", lambda: not worktrees(git_repo) or None)
        assert plan.read_text() == ""
        assert git(git_repo, "log", "--format=%s").splitlines().count("create made.txt with one") == 1
        assert (git_repo / "made.txt").read_text() == "one\n"
        cards = [each for each in built.answers(channel, ref) if "*1. " in whole_text(each)]
        assert len(cards) == 1
        if points[0].startswith("race.checked"):
            assert str(cards[0]["text"]).count("The machine stopped while the checks ran") == 2


def worktrees(repo: Path) -> list[str]:
    return git(repo, "worktree", "list").splitlines()[1:]


async def continued(built: House, channel: str, ref: str) -> None:
    """A person lets interrupted agents go on until the card is there."""
    pressed: set[str] = set()

    def question() -> Message | None:
        for each in built.answers(channel, ref):
            if "*1. " in whole_text(each) or (each["ts"] not in pressed and "Continue" in buttons(each)):
                return each
        return None

    while "Continue" in buttons(found := await built.until("a question or the card", question)):
        pressed.add(found["ts"])
        await press(built, channel, found, "Continue")


async def test_r03_claude_and_kimi_race_and_the_picked_one_goes_on(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with ModelServer() as anthropic, ModelServer() as moonshot:
        env = {**model_env(anthropic), "PATH": path_with_node()}
        async with house(tmp_path, "sample", extra_env=env, cards=True) as built:
            kimi = {
                "binary": str(require("kimi")),
                "apiKey": "sk-not-a-real-key-0123456789",
                "baseUrl": f"{moonshot.url}/v1",
            }
            claude = {"binary": str(require("claude"))}
            quick = {"debounceSeconds": 0}
            channel = await built.add_repo(git_repo, "sample", agent=quick, claude=claude, kimi=kimi)
            await built.supervise()
            for model, name in ((anthropic, "claude"), (moonshot, "kimi")):
                make = Call("Bash", {"command": f"echo {name} > made.txt", "description": "make it"})
                model.play(Reply("", (make,)), Reply(f"Made by {name}. The word is quincunx."))
            ref = await built.say(channel, "!race make the file")
            card = await card_with(built, channel, ref, "Pick one")
            text = whole_text(card)
            assert "> Made by claude." in text.replace("&gt;", ">")
            assert "> Made by kimi." in text.replace("&gt;", ">")
            await press(built, channel, card, "Pick kimi")
            await card_with(built, channel, ref, "Removed the work of `claude`")
            assert (git_repo / "made.txt").read_text() == "kimi\n"
            assert await built.stop() == 0
            await built.supervise()
            moonshot.play(Reply("Kimi remembers."))
            await built.say(channel, "which word?", thread_ts=ref)
            await built.answer(channel, ref, "Kimi remembers.")
            assert "quincunx" in moonshot.said()


async def test_r04_a_race_in_telegram(tmp_path: Path, git_repo: Path) -> None:
    config = json.dumps({"agent": {"debounceSeconds": 0}, "commands": [SCRIBE], "output": {"changes": "off"}})
    async with talk(tmp_path, git_repo, config=config) as it:
        asked = it.server.say(GROUP, "race: create made.txt with one")
        card = await it.heard("Pick one")
        await it.marked(asked, "👍")
        assert "1. rehearsal" in card["text"]
        assert "2. scribe" in card["text"]
        await it.pressed(card, "Pick scribe")
        await it.heard("picked scribe")
        assert (git_repo / "made.txt").read_text() == "two\n"
        assert git(git_repo, "status", "--porcelain") == ""
