"""One message, one turn, one answer; queues, debounce and order."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

from codebutler.domain.model import Command, Prompt, React, Upload
from codebutler.protocol.messages import Heartbeat, Send, Stored, TurnStarted
from codebutler_worker.agents.backend import AgentEvent, Finished, Started, TurnRequest, Usage
from tests.clock import ManualClock
from tests.events import deleted, edited, posted
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, OneAgent, ScriptedBackend, settings, worker


async def test_a_message_is_answered_in_its_thread(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(parent.says("fix the bug", "100.1"))
        run = await parent.run(0)
        assert run.request.prompt == "fix the bug"
        assert run.request.session_id is None
        assert str(tmp_path) in run.request.system_prompt
        assert parent.reactions("100.1") == []
        run.finish("It is **fixed**.")
        post = await parent.post_with("fixed")
        assert post.thread == "100.1"
        assert blocks_of(post)[0]["type"] == "markdown"
        assert re.search(r"_tokens: 12 in / 34 out • \d+s • 3 turns • \$0\.12_\Z", blocks_of(post)[0]["text"])
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert parent.logs("MSG") == [f'{USER}: "fix the bug"']
        begun, ended = parent.logs("CLD")
        assert begun == "processing 1 message (new session)"
        assert re.fullmatch(r"done · \d+s · 3 turns · \$0\.12", ended)
        assert parent.logs("RSP") == ['"It is **fixed**."']


async def test_the_final_mark_comes_after_the_answer_stands(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(parent.says("fix the bug", "100.1"))
        run = await parent.run(0)
        await parent.until(lambda: parent.reactions("100.1") == ["eyes"], flow=True)
        parent.mute = True
        run.finish("It is fixed.")
        await parent.until(lambda: parent.logs("RSP"))
        unanswered = [send for send in parent.said(Send) if "It is fixed." in str(send.operation)]
        assert len(unanswered) == 1
        assert parent.reactions("100.1") == ["eyes"]
        parent.mute = False
        parent.take(unanswered[0])
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])


async def test_marks_that_slack_takes_slowly_hold_up_no_answer(tmp_path: Path) -> None:
    def marks() -> int:
        return sum(isinstance(operation, React) for operation in parent.operations)

    async with worker(settings(tmp_path)) as parent:
        parent.withheld = (React,)
        parent.says("the first", "1.1")
        await parent.run(0)
        for number in range(150):
            await parent.stored(parent.says("fix it", f"{100 + number}.1"))
        await parent.until(lambda: marks() > 64, flow=True)
        await parent.clock.advance(60)
        assert marks() < 150
        event = posted(channel=CHANNEL, ref="900.1", user=USER, text="!ping")
        parent.deliver(event, Command(name="ping"))
        await parent.until(lambda: parent.posts)


async def test_stored_comes_before_anything_runs(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        seq = parent.says("hello", "100.1")
        await parent.run(0)
        await parent.stored(seq)
        kinds = [type(message) for message in parent.heard if isinstance(message, TurnStarted | Stored)]
        assert kinds == [Stored, TurnStarted]


async def test_debounce_makes_one_turn_of_several_messages(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, debounce_s=3)) as parent:
        await parent.stored(parent.says("fix the login", "100.1"))
        await parent.clock.advance(2)
        await parent.stored(parent.says("and the CSS", "100.2", "100.1"))
        assert parent.reactions("100.2") == []  # nothing but more words is waited for
        run = await parent.run(0)
        assert run.request.prompt == "fix the login\n\nand the CSS"
        assert run.started_s >= 5
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        await parent.until(lambda: parent.reactions("100.2") == ["white_check_mark"])
        assert len(parent.backend.runs) == 1


async def test_an_event_delivered_twice_runs_once(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        event = posted(channel=CHANNEL, ref="100.1", user=USER, text="hello")
        parent.deliver(event, Prompt(text="hello"))
        seq = parent.deliver(event, Prompt(text="hello"))
        await parent.stored(seq)
        (await parent.run(0)).finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert len(parent.posts) == 1
        assert len(parent.backend.runs) == 1


async def test_a_thread_resumes_its_session_and_waits_for_its_turn(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("first", "100.1")
        first = await parent.run(0)
        await parent.stored(parent.says("second", "100.2", "100.1"))
        await parent.until(lambda: parent.reactions("100.2") == ["hourglass_flowing_sand"], flow=True)
        assert len(parent.backend.runs) == 1
        first.finish("One.", "session-7")
        second = await parent.run(1)
        assert second.request.session_id == "session-7"
        assert second.request.cost_before_usd == 0.12
        assert second.request.prompt == "second"
        second.finish("Two.", "session-7")
        await parent.post_with("Two.")
        assert [post.thread for post in parent.posts] == ["100.1", "100.1"]


async def test_another_thread_has_a_session_of_its_own_and_its_turn_after(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("first", "100.1")
        first = await parent.run(0)
        await parent.stored(parent.says("elsewhere", "200.1"))
        first.finish("One.", "session-1")
        second = await parent.run(1)
        assert second.request.session_id is None
        second.finish("Two.", "session-2")
        assert (await parent.post_with("Two.")).thread == "200.1"


async def test_two_turns_run_side_by_side_where_that_is_allowed(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, parallel_turns=2)) as parent:
        parent.says("first", "100.1")
        parent.says("elsewhere", "200.1")
        await parent.run(1)
        assert not any(run.closed.is_set() for run in parent.backend.runs)
        await parent.until(lambda: any(beat.running == 2 for beat in parent.said(Heartbeat)))


async def test_the_whole_channel_may_be_one_conversation(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, scope="channel", debounce_s=3)) as parent:
        parent.says("one", "100.1")
        await parent.stored(parent.says("two", "100.2"))
        run = await parent.run(0)
        assert run.request.prompt == "one\n\ntwo"
        run.finish("Both.", "session-1")
        assert (await parent.post_with("Both.")).thread == "100.2"
        parent.says("three", "300.1")
        assert (await parent.run(1)).request.session_id == "session-1"


async def test_an_edit_replaces_what_has_not_started(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, debounce_s=3)) as parent:
        parent.says("delete everything", "100.1")
        edit = edited(channel=CHANNEL, ref="100.1", user=USER, text="delete nothing", edit="101.0")
        await parent.stored(parent.deliver(edit, Prompt(text="delete nothing")))
        run = await parent.run(0)
        assert run.request.prompt == "delete nothing"
        late = edited(channel=CHANNEL, ref="100.1", user=USER, text="too late", edit="102.0")
        await parent.stored(parent.deliver(late, Prompt(text="too late")))
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert len(parent.backend.runs) == 1


async def test_a_deleted_message_is_withdrawn(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, debounce_s=3)) as parent:
        parent.says("one", "100.1")
        parent.says("two", "100.2", "100.1")
        await parent.stored(parent.deliver(deleted(channel=CHANNEL, ref="100.1", user=USER)))
        parent.says("gone", "200.1")
        await parent.stored(parent.deliver(deleted(channel=CHANNEL, ref="200.1", user=USER)))
        run = await parent.run(0)
        assert run.request.prompt == "two"
        run.finish()
        await parent.until(lambda: parent.reactions("100.2") == ["white_check_mark"], flow=True)
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 1


async def test_a_message_that_comes_after_its_own_deletion_does_not_run(tmp_path: Path) -> None:
    """Slack sends an event that was not acknowledged again, minutes later."""
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(parent.deliver(deleted(channel=CHANNEL, ref="100.1", user=USER)))
        parent.says("gone", "100.1")
        parent.says("next", "100.2")
        run = await parent.run(0)
        assert run.request.prompt == "next"
        run.finish()
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 1


async def test_another_agent_gets_a_turn_of_its_own(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, debounce_s=3)) as parent:
        parent.says("one", "100.1")
        parent.says("two", "100.2", "100.1", prefix="kimi")
        parent.says("three", "100.3", "100.1")
        first = await parent.run(0)
        assert first.request.prompt == "one"
        first.finish()
        failure = await parent.post_with("❌")
        assert text_of(failure) == "❌ kimi does not work here: use claude"
        await parent.until(lambda: parent.reactions("100.2") == ["x"])
        assert (await parent.run(1)).request.prompt == "three"


async def test_late_messages_are_marked(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("while you slept", "100.1", late=True)
        assert (await parent.run(0)).request.prompt == "[written while you were offline] while you slept"


async def test_a_long_answer_is_split_and_a_very_long_one_is_a_file(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("tell me", "100.1")
        (await parent.run(0)).finish(
            "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(25))
        )
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert len(parent.posts) == 3
        assert all(len(blocks_of(post)[0]["text"]) <= 3500 for post in parent.posts)
        parent.says("tell me more", "200.1")
        (await parent.run(1)).finish("word " * 20_000)
        await parent.until(lambda: parent.reactions("200.1") == ["white_check_mark"])
        file = next(operation for operation in parent.operations if isinstance(operation, Upload))
        assert file.filename == "answer.md"
        assert len(file.content) > 90_000
        assert "Full answer attached" in text_of(parent.posts[-1])


async def test_a_failed_turn_says_what_to_do(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("hello", "100.1")
        (await parent.run(0)).does(
            Started("s"), Finished(False, "Log in again: run `claude login`.", "auth", Usage())
        )
        assert text_of(await parent.post_with("❌")) == "❌ Log in again: run `claude login`."
        await parent.until(lambda: parent.reactions("100.1") == ["x"])


async def test_an_answer_is_on_disk_before_its_agent_is_ended(tmp_path: Path) -> None:
    """To end its processes takes as long as to tell the answer."""

    class Watched(ScriptedBackend):
        left: list[str] | None = None

        async def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
            async for event in super().start(turn):
                yield event
                if isinstance(event, Finished):
                    self.left = states()

    def states() -> list[str]:
        with closing(sqlite3.connect(tmp_path / ".codebutler" / "store.db")) as store:
            return [state for (state,) in store.execute("SELECT state FROM turns")]

    backend = Watched(ManualClock())
    async with worker(settings(tmp_path), agents=lambda told, _clock: OneAgent(backend, told)) as parent:
        parent.backend = backend
        parent.says("hello", "100.1")
        run = await parent.run(0)
        run.finish("Done.")
        await run.closed.wait()
        assert backend.left == ["done"]
