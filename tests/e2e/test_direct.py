"""Direct messages to the app.

| case | what happens |
|---|---|
| D01 | the first one ever, written while nothing runs: it is asked which of two repositories is meant |
| D02 | the answer is seen while it is written, and stands once; what is written when we are killed goes |
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from codebutler.domain.message import REPO_ACTION
from codebutler.workspace.state import Message
from tests.e2e.house import House, house, whole_text
from tests.e2e.test_matrix import QUICK
from tests.modelserver.chat import events
from tests.modelserver.completions import CompletionsServer
from tests.modelserver.server import Reply
from tests.programs import require


def direct_of(built: House) -> bool:
    """Whether there is any direct conversation."""
    return any(channel.is_im for channel in built.workspace.workspace.channels.values())


def streaming(built: House, channel: str, text: str) -> Message | None:
    """A message that grows and says this so far."""
    said = built.workspace.workspace.channel(channel).messages.values()
    return next((one for one in said if one.stream is not None and text in one.text), None)


async def test_d01_a_direct_message_finds_its_repository(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "alpha", "beta") as built:
        person, bot = built.workspace.workspace.person, built.workspace.workspace.bot
        alpha = await built.add_repo(git_repo, "alpha", agent=QUICK)
        await built.add_repo(shutil.copytree(git_repo, tmp_path / "second"), "beta", agent=QUICK)
        await built.supervise()
        await built.until("an acquaintance", lambda: direct_of(built))
        await built.stop()
        direct = built.workspace.workspace.open_im(person.id, bot.id).id
        ts = await built.say(direct, "list the files")
        await built.supervise()
        card = await built.answer(direct, ts, "Which repository")
        await built.click(direct, card["ts"], REPO_ACTION, "alpha")
        assert await built.outcome(direct, ts) == "white_check_mark"
        await built.answer(direct, ts, "app.py")
        again = await built.say(direct, "list the files", ts)
        assert await built.outcome(direct, again) == "white_check_mark"
        told = await built.say(direct, "status")
        await built.answer(direct, told, "beta")
        said = built.workspace.workspace.channel(alpha).messages.values()
        assert not [message for message in said if "app.py" in message.text]


async def test_d02_an_answer_is_seen_while_it_is_written(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with CompletionsServer() as model, house(tmp_path, "alpha") as built:
        model.spell = lambda reply, piece: events(reply, piece)[1:]
        section = {"baseUrl": model.base_url, "apiKey": "sk-not-a-real-key", "model": "kimi-test"}
        agent = {"default": "native", "debounceSeconds": 0}
        await built.add_repo(git_repo, "alpha", agent=agent, native=section)
        await built.supervise()
        person, bot = built.workspace.workspace.person, built.workspace.workspace.bot
        direct = built.workspace.workspace.open_im(person.id, bot.id).id
        model.play(Reply("It greets the world, and then it ends.", hold=True))
        ts = await built.say(direct, "what does it do?")
        streamed = await built.until("a stream", lambda: streaming(built, direct, "It greets"))
        model.release.set()
        answer = await built.answer(direct, ts, "and then it ends.")
        assert await built.outcome(direct, ts) == "white_check_mark"
        told = [message for message in built.answers(direct, ts) if "It greets" in whole_text(message)]
        assert [message["ts"] for message in told] == [streamed.ts] == [answer["ts"]]
        assert "tokens:" in whole_text(answer)

        model.release.clear()
        model.play(Reply("It is written in Python, for all I know.", hold=True))
        again = await built.say(direct, "in which language?", ts)
        torn = await built.until("a stream", lambda: streaming(built, direct, "It is written"))
        await built.stop(signal.SIGKILL)
        await built.supervise()
        await built.until(
            "a thread without the torn answer",
            lambda: torn.ts not in [message["ts"] for message in built.answers(direct, ts)],
        )
        await built.answer(
            direct, ts, "The machine stopped while I was working on: _in which language?_", again
        )
