"""`codebutler chat` at a real terminal, with a supervisor at work.

| case | what happens |
|---|---|
| T01 | lines, pastes, words of ours; Ctrl-C throws a line away, stops a turn, leaves; the next chat goes on |
| T02 | the native agent asks; leaving and coming back, it still does; leave by number, its answer while it comes |
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.house import command, house
from tests.e2e.test_matrix import rehearsal
from tests.e2e.test_native import native
from tests.modelserver.chat import events
from tests.modelserver.completions import CompletionsServer
from tests.modelserver.server import Call, Reply
from tests.screen import CTRL_C, CTRL_D, ENTER, PASTED, UP, Screen, screen


async def test_t01_a_conversation_at_a_terminal(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        env = {**built.env, "TERM": "xterm-256color"}
        async with screen(command("chat"), env) as shown:
            await shown.ready()
            shown.type(PASTED.format("list the files\n\nread README.md") + ENTER)
            await shown.until("A sample repository.")
            await shown.ready()
            shown.type("!help" + ENTER)
            await shown.until("!help COMMAND")
            assert "Slash commands may not work" not in shown.text
            # Its words are code, and the marks around them are not shown.
            assert b"\x1b[36m!ping\x1b[0m" in shown.raw
            await shown.ready()
            shown.type("!ping" + ENTER)
            await shown.until("pong")
            await interrupt_everything(shown)
        messages = built.workspace.workspace.channel(channel).messages
        [root] = [ts for ts, message in messages.items() if not message.is_reply]
        assert messages[root].text == "*operator:* list the files\n\nread README.md"
        async with screen(command("chat", "sample"), {**env, "NO_COLOR": "1"}, columns=40) as again:
            await again.ready()
            assert "pong from sample" in again.text
            assert b"\x1b[2m" not in again.raw
            assert b"\x1b[36m" not in again.raw
            # What somebody else says in the thread is heard here.
            await built.say(channel, "!ping", thread_ts=root)
            await again.until("you> !ping\npong from sample")
            await again.ready()
            again.type(UP + UP)
            await again.until("you> run: echo one")
            again.type(CTRL_C)
            await again.ready()
            again.type(CTRL_D)
            assert await again.ended() == 0
        assert (built.home / "chat.json").stat().st_mode & 0o777 == 0o600


async def interrupt_everything(shown: Screen) -> None:
    """Ctrl-C on a line, on a turn, and when there is nothing to interrupt."""
    await shown.ready()
    shown.type("run: echo one \\" + ENTER)
    await shown.until("...>")
    shown.type("two")
    await shown.until("...> two")
    shown.type(CTRL_C)
    await shown.until("press Up to get it back")
    await shown.ready()
    shown.type("run: sleep 1000" + ENTER)
    await shown.until("Running…")
    shown.type(CTRL_C)
    await shown.until("🛑 stopped")
    await shown.ready()
    shown.type(CTRL_C)
    assert await shown.ended() == 0


def text_first(reply: Reply, piece: int) -> Sequence[dict[str, Any]]:
    """As OpenAI streams it, without the piece that holds nothing: held after the first one, some text is out."""
    return events(reply, piece)[1:]


async def test_t02_the_native_agent_asks_at_the_terminal(tmp_path: Path, git_repo: Path) -> None:
    edit = Call("edit_file", {"path": "src/app.py", "old": "hello", "new": "good day"})
    async with CompletionsServer() as model, house(tmp_path, "sample") as built:
        channel = await native(built, git_repo, model)
        env = {**built.env, "TERM": "dumb"}
        model.spell = text_first
        model.play(Reply("I make it polite.", (edit,)), Reply("First line.\nSecond line.", hold=True))
        async with screen(command("chat", "--new"), env) as left:
            await left.ready()
            left.type("agent: be polite" + ENTER)
            await left.until("[1] Allow")
            assert "I make it polite." in left.text
            left.type("7" + ENTER)
            await left.until("there is no choice 7")
            left.type(CTRL_D)
            assert await left.ended() == 0
            assert "The run continues" in left.text
        async with screen(command("chat"), env) as shown:
            await shown.until("[1] Allow")
            await shown.ready()
            shown.type("1" + ENTER)
            await model.seen(2)
            await shown.until("First line.")
            assert "Allowed by operator" in shown.text
            model.release.set()
            await shown.until("tokens:")
            assert shown.text.count("First line.") == shown.text.count("Second line.") == 1
            await shown.ready()
            shown.type(CTRL_D)
            assert await shown.ended() == 0
            assert b"\x1b" not in shown.raw
        assert "good day" in (git_repo / "src" / "app.py").read_text()
        said = [message.text for message in built.workspace.workspace.channel(channel).messages.values()]
        assert not [text for text in said if text == "*operator:* 1"]
