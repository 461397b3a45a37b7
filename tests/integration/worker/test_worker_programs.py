"""Commands and sessions in a thread: their output, their end, what is typed into them, and what a crash leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import (
    AgentSection,
    AuthorizationRule,
    AuthorizationSection,
    CommandRule,
    RepoSettings,
)
from codebutler.domain.model import Command, Post, Update
from codebutler.protocol.messages import Audit, Heartbeat, Send, StopTurns
from codebutler_worker.agents.backend import GONE, Finished, Output, Started, ToolUse
from codebutler_worker.conversation.messages import LATE
from tests.events import posted
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, Run, settings, worker

SESSION = CommandRule(prefix="claude", binary="python3", mode="interactive")
COMMAND = CommandRule(prefix="rehearsal", binary="bash", args=("-c",))
MINE = "100.1"


def configured(repo: Path, *, shell: bool = False, **authorization: object) -> RepoSettings:
    """``claude:`` is a session here (of a shell or of Python), ``rehearsal:`` a command."""
    base = settings(repo)
    config = msgspec.structs.replace(
        base.config,
        commands=(msgspec.structs.replace(SESSION, binary="bash") if shell else SESSION, COMMAND),
        agent=AgentSection(default="native", debounce_seconds=3),
        authorization=AuthorizationSection(**authorization),  # type: ignore[arg-type]  # rules
    )
    return msgspec.structs.replace(base, config=config)


class Typist:
    """A session's keyboard."""

    def __init__(self, parent: Parent, refusal: str = "") -> None:
        self.typed: list[str] = []
        self._refusal = refusal
        parent.backend.type = self.type  # type: ignore[method-assign]  # what makes an agent one to type into

    async def type(self, turn_id: str, text: str) -> str:
        assert turn_id
        self.typed.append(text)
        return self._refusal


def thread(parent: Parent) -> list[str]:
    """The bot's messages as they stand now, oldest first."""
    shown: dict[str, str] = {}
    for send in parent.said(Send):
        match send.operation:
            case Post() as post:
                shown[f"9000.{len(shown) + 1:06d}"] = text_of(post)
            case Update(target=ts) as update:
                shown[ts] = text_of(update)
    return list(shown.values())


async def begun(parent: Parent, prefix: str, text: str = "x") -> Run:
    parent.says(text, MINE, prefix=prefix)
    run = await parent.run(0, flow=False)
    run.does(Started("0123"), ToolUse("1", prefix, text))
    return run


def done(code: int = 0, reason: str = "done") -> Finished:
    return Finished(code == 0, "tail", reason if code == 0 else "failed", exit_code=code)  # type: ignore[arg-type]


async def test_a_command_starts_at_once_and_is_told_raw(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        run = await begun(parent, "rehearsal", "ls | wc  -l")
        assert run.request.prompt == "ls | wc  -l"
        await parent.until(lambda: thread(parent) == ["⏳ Running…"])
        run.does(done())
        await parent.until(lambda: parent.reactions(MINE) == ["white_check_mark"])


async def test_its_output_is_one_message_that_is_edited_and_ends_with_the_exit_code(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        run = await begun(parent, "rehearsal")
        run.does(Output(live=("10%",)))
        await parent.until(lambda: thread(parent) == ["```\n10%\n```\n⏳ Running…"])
        run.does(Output(settled=("100%",), live=("ready",)))
        await parent.until(lambda: thread(parent) == ["```\n100%\nready\n```\n⏳ Running…"])
        run.does(Output(live=("ready",), note="a note"), done(3))
        await parent.until(lambda: parent.reactions(MINE) == ["x"])
        (text,) = thread(parent)
        assert text.startswith("```\n100%\nready\n```\na note\n❌ exit code 3 · 0s · `!logs ")
        audit = parent.said(Audit)[0]
        assert (audit.kind, audit.exit_code, audit.decision) == ("rehearsal", 3, "failed")
        assert parent.logs("WRN") == ["rehearsal: exit code 3: tail"]


async def test_what_it_said_is_said_again_as_it_was(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        run = await begun(parent, "rehearsal", "cat README.md")
        run.does(Finished(True, "# *Title*\n```\ncode", "done", exit_code=0))
        await parent.until(lambda: parent.reactions(MINE) == ["white_check_mark"])
        event = posted(channel=CHANNEL, ref="100.2", user=USER, text="!output", thread=MINE)
        parent.deliver(event, Command(name="output"))
        said = await parent.post_with("done: rehearsal, cat README.md")
        assert text_of(said).startswith("```\n# *Title*\n`\u200b`\u200b`\ncode\n```\n")


async def test_long_output_goes_on_in_new_messages(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        run = await begun(parent, "rehearsal")
        lines = tuple(f"line {number:04d}" for number in range(1000))
        run.does(Output(settled=lines[:600]), Output(settled=lines[600:]), done())
        await parent.until(lambda: parent.reactions(MINE) == ["white_check_mark"])
        shown = [line for text in thread(parent) for line in text.split("\n") if line.startswith("line")]
        assert shown == list(lines)
        assert len(thread(parent)) == 3
        assert all(len(text) <= 3900 for text in thread(parent))


async def test_a_command_that_cannot_start_says_why(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        run = await begun(parent, "rehearsal")
        run.does(Finished(False, "nope is not installed: install it", "unavailable"))
        await parent.until(lambda: parent.reactions(MINE) == ["x"])
        assert thread(parent) == ["❌ nope is not installed: install it"]


async def test_long_work_calls_who_asked_for_it(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        run = await begun(parent, "rehearsal")
        run.does(Output(live=("working",)))
        await parent.until(lambda: "working" in thread(parent)[-1])
        await parent.clock.advance(40)
        run.does(done())
        await parent.until(lambda: parent.reactions(MINE) == ["white_check_mark"])
        assert thread(parent)[0] == "```\nworking\n```"
        assert thread(parent)[1].startswith("✅ exit code 0 · 40s")
        assert (await parent.post_with("✅ exit code 0")).mention == USER, "the parent turns it into a call"


async def test_the_end_is_told_when_all_that_led_to_it_is_there(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        run = await begun(parent, "rehearsal")
        run.does(Output(live=("working",)))
        await parent.until(lambda: "working" in thread(parent)[-1])
        await parent.clock.advance(40)
        parent.withheld = (Update,)
        run.does(Output(live=("the last lines",)), done())
        await parent.until(lambda: thread(parent)[-1] == "```\nthe last lines\n```")
        parent.says("another", "300.1", prefix="rehearsal")
        await parent.run(1, flow=False)
        assert not any("exit code" in text_of(post) for post in parent.posts)
        assert parent.reactions(MINE) == ["eyes"]
        parent.withheld = ()
        for send in parent.said(Send):
            parent.take(send)
        await parent.until(lambda: parent.reactions(MINE) == ["white_check_mark"])
        assert "exit code 0" in text_of(parent.posts[-1])


async def test_commands_run_beside_a_session_and_beside_each_other(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        for number in range(3):
            parent.says("x", f"10{number}.1", prefix="rehearsal")
        parent.says("x", "200.1", prefix="claude")
        await parent.run(3, flow=False)
        await parent.until(lambda: parent.said(Heartbeat)[-1].running == 4)
        for run in parent.backend.runs:
            run.does(Started("1"), done())
        await parent.until(parent.is_idle, flow=True)


async def test_replies_are_typed_and_answered_in_new_messages(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        typist = Typist(parent)
        run = await begun(parent, "claude", "")
        await parent.until(lambda: "🚀 Session `claude` started" in "".join(thread(parent)))
        run.does(Output(live=(">>>",)))
        await parent.until(lambda: len(thread(parent)) == 2)
        parent.says("1+1", "100.2", MINE)
        await parent.until(lambda: parent.reactions("100.2") == ["white_check_mark"])
        assert typist.typed == ["1+1"]
        run.does(Output(live=(">>> 1+1", "2", ">>>"), fresh=True))
        await parent.until(lambda: len(thread(parent)) == 3)
        run.does(done())
        await parent.until(lambda: parent.reactions(MINE) == ["white_check_mark"])
        assert thread(parent)[1:3] == [
            "```\n&gt;&gt;&gt;\n```",
            "```\n&gt;&gt;&gt; 1+1\n2\n&gt;&gt;&gt;\n```",
        ]
        assert thread(parent)[3].startswith("✅ Session ended · exit code 0")
        assert len(parent.backend.runs) == 1


async def test_a_message_that_is_typed_slowly_keeps_only_its_end_mark(tmp_path: Path) -> None:
    """Until it has been typed it belongs to the session's turn, and gets the mark of that meanwhile."""
    async with worker(configured(tmp_path)) as parent:
        written = asyncio.Event()

        class Slow(Typist):
            async def type(self, turn_id: str, text: str) -> str:
                await written.wait()
                return await super().type(turn_id, text)

        Slow(parent)
        run = await begun(parent, "claude", "")
        parent.says("1+1", "100.2", MINE)
        await parent.until(lambda: parent.reactions("100.2") == ["eyes"], flow=True)
        written.set()
        await parent.until(lambda: parent.reactions("100.2") == ["white_check_mark"])
        run.does(done())
        await parent.until(parent.is_idle, flow=True)


async def test_what_is_refused_is_said_and_goes_to_no_agent(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        Typist(parent, refusal="🔒 not here")
        run = await begun(parent, "claude")
        parent.says("hunter2", "100.2", MINE)
        await parent.until(lambda: parent.reactions("100.2") == ["x"])
        assert "🔒 not here" in thread(parent)
        run.does(done())
        await parent.until(lambda: parent.reactions(MINE) == ["white_check_mark"])
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 1


async def test_who_may_not_use_the_session_may_not_type_into_it(tmp_path: Path) -> None:
    rules = (AuthorizationRule(channels=(CHANNEL,), users=("*",), allowed_prefixes=("native",)),)
    async with worker(configured(tmp_path, rules=rules)) as parent:
        typist = Typist(parent)
        run = await begun(parent, "claude")
        parent.says("rm -rf x", "100.2", MINE)
        await parent.until(lambda: parent.reactions("100.2") == ["x"])
        assert typist.typed == []
        assert "not authorized" in thread(parent)[-1]
        (audit,) = await parent.until(lambda: parent.said(Audit))
        assert (audit.user, audit.kind, audit.decision) == (USER, "claude", "refused: no rule allows it")
        run.does(done())


async def test_a_shells_lines_are_judged_each_and_keys_are_not(tmp_path: Path) -> None:
    async with worker(configured(tmp_path, shell=True, allowlist=("^(ls|rm)",))) as parent:
        typist = Typist(parent)
        run = await begun(parent, "claude")
        for number, (text, mark, said) in enumerate(
            [
                ("ls\nls -l", "white_check_mark", ""),
                ("ls\nsudo rm -rf /", "x", "That command is on the blocklist; it was not run."),
                ("ls\nmake", "x", "That command is not on the allowlist; it was not run."),
                ("^C", "white_check_mark", ""),
            ]
        ):
            ts = f"10{number + 1}.2"
            parent.says(text, ts, MINE)
            await parent.until(lambda ts=ts, mark=mark: parent.reactions(ts) == [mark])  # type: ignore[misc]  # defaults of a lambda
            assert not said or thread(parent)[-1] == said
        assert typist.typed == ["ls\nls -l", "^C"]
        refused = [(audit.text, audit.decision) for audit in parent.said(Audit)]
        assert refused == [
            ("ls sudo rm -rf /", "refused: on the blocklist"),
            ("ls make", "refused: not on the allowlist"),
        ]
        run.does(done())


async def test_what_was_written_while_we_were_away_is_not_typed(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        typist = Typist(parent)
        run = await begun(parent, "claude")
        parent.says("yes", "100.2", MINE, late=True)
        await parent.until(lambda: parent.reactions("100.2") == ["x"])
        assert (typist.typed, thread(parent)[-1]) == ([], LATE)
        run.does(done())


async def test_after_its_end_a_reply_is_a_prompt_again(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        run = await begun(parent, "claude")
        run.does(done())
        await parent.until(lambda: parent.reactions(MINE) == ["white_check_mark"])
        parent.says("and now?", "100.2", MINE)
        await parent.until(lambda: parent.reactions("100.2") == ["x"], flow=True)
        assert GONE not in thread(parent)


async def test_everybody_stopping_ends_a_session_that_one_stop_would_only_interrupt(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        asked: list[str] = []

        async def stop(turn_id: str) -> bool:
            asked.append(turn_id)
            if len(asked) == 2:
                parent.backend.runs[0].does(Finished(False, "", "stopped", exit_code=130))
            return len(asked) == 2

        parent.backend.stop = stop  # type: ignore[method-assign, assignment]  # a session's
        await begun(parent, "claude")
        parent.channel.send(StopTurns(user="U2"))
        await parent.until(lambda: parent.reactions(MINE) == ["octagonal_sign"])
        assert len(asked) == 2


@pytest.mark.parametrize("prefix", ["claude", "rehearsal"])
async def test_a_crash_ends_it_with_a_word_and_nothing_runs_twice(tmp_path: Path, prefix: str) -> None:
    config = configured(tmp_path)
    async with worker(config) as parent:
        run = await begun(parent, prefix, "make it")
        run.does(Output(live=("half",)))
        await parent.until(lambda: "half" in "".join(thread(parent)))
    async with worker(config) as parent:
        await parent.until(lambda: "x" in parent.reactions(MINE))
        (notice,) = parent.posts
        assert "The machine stopped while `make it` was running" in text_of(notice)
        assert blocks_of(notice) == ()
        await parent.until(parent.is_idle, flow=True)
        assert parent.backend.runs == []


async def test_a_kill_ends_a_session_without_asking_it(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        run = await begun(parent, "claude")
        event = posted(channel=CHANNEL, ref="100.2", user=USER, text="!kill", thread=MINE)
        parent.deliver(event, Command(name="kill"))
        await parent.until(run.closed.is_set)
        await parent.until(lambda: parent.reactions(MINE) == ["octagonal_sign"])
        assert thread(parent)[-1].startswith("🛑 Session ended · stopped")


async def test_an_interrupted_session_is_told_how_to_end_it(tmp_path: Path) -> None:
    async with worker(configured(tmp_path)) as parent:
        asked: list[str] = []

        async def stop(turn_id: str) -> bool:
            asked.append(turn_id)
            return False

        parent.backend.stop = stop  # type: ignore[method-assign, assignment]  # a session's
        run = await begun(parent, "claude")
        event = posted(channel=CHANNEL, ref="100.2", user=USER, text="!stop", thread=MINE)
        parent.deliver(event, Command(name="stop"))
        await parent.until(lambda: len(asked) == 1)
        assert "Sent Ctrl-C to 1 session" in thread(parent)[-1]
        run.does(done())
        await parent.until(lambda: parent.reactions(MINE) == ["white_check_mark"])
