"""Our own words over the wire: every one of the table, said every way there is.

| case | what happens |
|---|---|
| K01 | words in a thread are answered there; shell, checks, differences and undoing really happen |
| K02 | every word as a slash command is taken within three seconds; whoever typed it is told, or the channel; a
|     | stranger's does nothing |
| K03 | while a turn runs: `/word` and `/butler word` as text in its thread, and an edit that mends a word |
| K04 | real Claude Code, killed at work: its tree of processes is gone, its change undone, its session goes on |
| K05 | an answered message is edited: the answer stands, and *Ask again* runs the edited text, once |
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

from codebutler.domain.commands import WORDS
from codebutler.workspace.events import EphemeralMessage
from codebutler.workspace.state import User
from tests.e2e.house import House, house, whole_text
from tests.e2e.test_busy import STOPPED_S, bash, claude, eventually, model_env, processes
from tests.e2e.test_matrix import rehearsal
from tests.modelserver.server import ModelServer, Reply

ACK_S = 3.0
IN_A_THREAD = {
    "help": "that agent. Commands:",
    "status": "*sample*: 0 running",
    "list": "<http://127.0.0.1:",
    "agents": "✅ `rehearsal:` Practice agent · works offline",
    "output": "README.md",
    "c echo from-the-$((1+1))-shell": "from-the-2-shell",
    "diff": "Nothing has changed",
    "checks": "checks passed",
    "reset": "starts a new session",
}


def git(repo: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    subprocess.run(["git", *identity, *words], cwd=repo, check=True)


async def answered(built: House, channel: str, root: str, word: str, expected: str) -> str:
    """Say the word in the thread; what came first and contains ``expected``."""
    ts = await built.say(channel, f"!{word}", root)
    return whole_text(await built.answer(channel, root, expected, after=ts))


async def test_k01_words_in_a_thread(tmp_path: Path, git_repo: Path) -> None:
    (git_repo / "Makefile").write_text("check:\n\t@echo checks passed\n")
    git(git_repo, "add", "Makefile")
    git(git_repo, "commit", "-qm", "Check")
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        root = await built.say(channel, "list the files")
        await built.answer(channel, root, "_tokens:")
        await built.outcome(channel, root)
        for word, expected in IN_A_THREAD.items():
            said = await answered(built, channel, root, word, expected)
            assert "not available" not in said

        ts = await built.say(channel, "create notes.txt with bread and milk", root)
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert "+bread and milk" in await answered(built, channel, root, "diff", "1 file changed")
        assert "notes.txt" in await answered(built, channel, root, "diff run", "1 file changed")
        ts = await built.say(channel, "!undo", root)
        card = await built.answer(channel, root, "Undo “create notes.txt", after=ts)
        (button,) = card["blocks"][1]["elements"]
        await built.click(channel, card["ts"], button["action_id"], button["value"])
        await built.answer(channel, root, "Undid changes to 1 file", after=card["ts"])
        assert not (git_repo / "notes.txt").exists()


async def test_k02_every_word_as_a_slash_command(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        for word in [*WORDS, "nosuchword"]:
            began_s = time.monotonic()
            await slash(built, channel, word)
            assert time.monotonic() - began_s < ACK_S
        shown = {name for name, word in WORDS.items() if word.shown and word.takes("")} - {"checks"}

        def look() -> bool:
            told = "\n".join(whisper.text for whisper in whispers(built))
            return all(
                text in told for text in ("pong", "Available agents", "`!c COMMAND`", "Unknown command")
            )

        await built.until("the answers for one", look)
        await built.until("the answers for all", lambda: len(in_channel(built, channel)) >= len(shown))
        assert not any("pong" in text for text in in_channel(built, channel))
        # A timer speaks in the channel, so the channel is told.
        await slash(built, channel, "in 2h look")
        await built.until(
            "a timer", lambda: any("cancels it" in text for text in in_channel(built, channel)) or None
        )
        await slash(built, channel, "jobs")
        await built.until(
            "a list", lambda: any("“look”" in whisper.text for whisper in whispers(built)) or None
        )
        stranger = built.workspace.add_user("mallory")
        await slash(built, channel, "status", stranger)
        await built.until(
            "a refusal", lambda: any("not authorized" in text for text in in_channel(built, channel))
        )
        assert {whisper.user for whisper in whispers(built)} == {built.workspace.workspace.person.id}


async def test_k03_the_other_ways_to_say_a_word(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        root = await built.say(channel, "wait 60 seconds")
        await built.until("work", lambda: "eyes" in built.reactions(channel, root))
        for text, expected in (
            ("/status", "1 running"),
            ("/butler list", "👀 running"),
            ("/help ping", "`!ping`"),
        ):
            ts = await built.say(channel, text, root)
            await built.answer(channel, root, expected, after=ts)
        ts = await built.say(channel, "!klli", root)
        await built.answer(channel, root, "Did you mean `!kill`?", after=ts)
        await built.person.chat_update(channel=channel, ts=ts, text="!kill")
        await built.answer(channel, root, "Killing 1 run.", after=ts)
        assert await built.outcome(channel, root) == "octagonal_sign"


async def test_k05_an_answered_message_is_edited(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        root = await built.say(channel, "list the files")
        assert await built.outcome(channel, root) == "white_check_mark"
        await built.person.chat_update(channel=channel, ts=root, text="read README.md")
        card = await built.answer(channel, root, "The answer is for the original text")
        [button] = card["blocks"][-1]["elements"]
        for _ in range(2):
            await built.click(channel, card["ts"], "codebutler.ask_again", button["value"])
        await built.answer(channel, root, "A sample repository.")
        await built.until("its mark", lambda: built.reactions(channel, root) == {"white_check_mark"})
        texts = [whole_text(message) for message in built.answers(channel, root)]
        assert sum("A sample repository." in text for text in texts) == 1


async def test_k04_claude_killed_undone_and_continued(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        model.play(Reply("On it.", bash("echo half > half.txt; touch begun; setsid sleep 300")))
        root = await built.say(channel, "remember quincunx")
        await eventually(30, (git_repo / "begun").exists)
        await built.say(channel, "!kill", root)
        await eventually(STOPPED_S, lambda: not processes(str(git_repo)))
        assert await built.outcome(channel, root) == "octagonal_sign"
        ts = await built.say(channel, "!undo", root)
        card = await built.answer(channel, root, "half.txt", after=ts)
        (button,) = card["blocks"][1]["elements"]
        await built.click(channel, card["ts"], button["action_id"], button["value"])
        await built.answer(channel, root, "Undid changes to 2 files", after=card["ts"])
        assert not (git_repo / "half.txt").exists()
        model.script[:] = [Reply("It was quincunx.")]
        await built.say(channel, "which word was it?", root)
        await built.answer(channel, root, "It was quincunx.")
        assert "remember quincunx" in model.said()


async def slash(built: House, channel: str, text: str, user: User | None = None) -> None:
    given = {"channel": channel, "command": "/butler", "text": text}
    async with asyncio.timeout(ACK_S * 2):
        await built.workspace.interactions.slash(user or built.workspace.workspace.person, given)


def whispers(built: House) -> list[EphemeralMessage]:
    return list(built.workspace.context.ephemerals._messages.values())


def in_channel(built: House, channel: str) -> list[str]:
    """What the bot says in the channel itself."""
    told = built.workspace.call("conversations.history", built.workspace.bot_token, channel=channel)
    return [whole_text(message) for message in told["messages"] if message.get("bot_id")]
