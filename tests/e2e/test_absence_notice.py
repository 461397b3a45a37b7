"""When we are back, the channels concerned are told, once: through the real processes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.e2e.house import House, house
from tests.e2e.test_matrix import QUICK, buttons
from tests.programs import require


def told(built: House, channel: str) -> list[str]:
    """The lines in the channel itself, not in its threads, that say we are back."""
    history = built.workspace.call("conversations.history", built.workspace.bot_token, channel=channel)
    return [message["text"] for message in history["messages"] if "Back after" in message["text"]]


async def test_after_a_crash_each_channel_concerned_is_told_once(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample", "other") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        quiet = built.channel_id("other")
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(git_repo, elsewhere)
        await built.add_repo(elsewhere, "other", agent=QUICK)
        await built.supervise()
        running = await built.say(channel, "wait 300 seconds")
        await built.until("it at work", lambda: "eyes" in built.reactions(channel, running) or None)
        await built.stop(signal.SIGKILL)
        late = await built.say(channel, "!ping")
        await built.supervise()
        await built.answer(channel, late, "pong")
        await built.until("a question", lambda: buttons(built, channel, running, "codebutler.retry"))
        [line] = await built.until("the line", lambda: told(built, channel) or None)
        assert "1 message sent meanwhile is answered late" in line
        assert "1 interrupted run asks in its thread" in line
        # A second crash right after it: what it left is dealt with in the threads.
        await built.stop(signal.SIGKILL)
        again = await built.say(channel, "!ping")
        await built.supervise()
        await built.answer(channel, again, "pong")
        assert await built.stop() == 0
        assert told(built, channel) == [line]
        assert told(built, quiet) == []
