"""Death in the middle: what the next life finds, says and does not do."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from pathlib import Path
from typing import Literal

import pytest

from codebutler.config.paths import Home
from codebutler.domain.model import ButtonClicked, Post
from codebutler.protocol.messages import Audit, Configure, Goodbye, Heartbeat, Hello, Log, Send, TurnEnded
from codebutler.protocol.pipe import MessagePipe, to_parent_codec
from codebutler_worker.agents.backend import Finished, Started, ToolUse, Usage
from codebutler_worker.worker.bootstrap import serve
from tests.clock import ManualClock
from tests.events import clicked
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, OneAgent, Parent, ScriptedBackend, settings, worker


def click(action_id: str, value: str, message_ts: str, action_ts: str = "500.1") -> ButtonClicked:
    return clicked(
        channel=CHANNEL,
        user=USER,
        message=message_ts,
        action_id=action_id,
        value=value,
        press=action_ts,
        thread="100.1",
    )


def buttons(post: Post) -> dict[str, str]:
    """action_id -> value of a post's buttons."""
    elements = [element for block in blocks_of(post) for element in block.get("elements", [])]
    return {element["action_id"]: element["value"] for element in elements}


async def die_while_running(repo: Path, *, started: bool = True) -> None:
    async with worker(settings(repo)) as parent:
        parent.says("rename the module\nand fix the tests", "100.1")
        run = await parent.run(0)
        if started:
            run.does(Started("session-9"))
            await parent.until(lambda: b"session-9" in _sessions(repo))
        await parent.until(lambda: parent.reactions("100.1") == ["eyes"], flow=True)
        assert not run.closed.is_set()


def _sessions(repo: Path) -> bytes:
    with sqlite3.connect(repo / ".codebutler" / "store.db") as connection:
        rows = connection.execute("SELECT session_id FROM threads").fetchall()
    connection.close()
    return repr(rows).encode()


async def test_a_turn_that_was_running_is_never_rerun_but_asked_about(tmp_path: Path) -> None:
    await die_while_running(tmp_path)
    async with worker(settings(tmp_path)) as parent:
        question = await parent.post_with("rename the module and fix the tests")
        assert question.thread == "100.1"
        (act,) = await parent.until(lambda: parent.said(Audit))
        assert (act.user, act.kind, act.decision) == (USER, "claude", "interrupted")
        assert set(buttons(question)) == {"codebutler.retry", "codebutler.drop"}
        parent.says("next", "200.1")
        assert (await parent.run(0)).request.prompt == "next"
        assert parent.reactions("100.1") == []


async def test_who_waits_is_told_however_often_we_die_in_between(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.withheld = (TurnEnded,)
        parent.says("what time is it?", "100.1")
        (await parent.run(0)).finish("Late.")
        (first,) = await parent.until(lambda: parent.said(TurnEnded), flow=True)
        assert (first.thread, first.messages, first.outcome) == ("100.1", ("100.1",), "done")
    async with worker(settings(tmp_path)) as parent:
        assert await parent.until(lambda: parent.said(TurnEnded), flow=True) == [first]
        await parent.until(parent.is_idle, flow=True)
    async with worker(settings(tmp_path)) as parent:
        parent.says("and now?", "200.1")
        (await parent.run(0)).finish("Later.")
        (last,) = await parent.until(lambda: parent.said(TurnEnded), flow=True)
        assert last.messages == ("200.1",)


async def test_an_interrupted_turn_is_told_of_before_its_thread_is_asked(tmp_path: Path) -> None:
    await die_while_running(tmp_path)
    async with worker(settings(tmp_path), mute=True) as parent:
        (told,) = await parent.until(lambda: parent.said(TurnEnded), flow=True)
        assert (told.messages, told.outcome) == (("100.1",), "interrupted")


async def test_continue_resumes_the_session_once(tmp_path: Path) -> None:
    await die_while_running(tmp_path)
    async with worker(settings(tmp_path)) as parent:
        turn_id = buttons(await parent.post_with("rename"))["codebutler.retry"]
        parent.deliver(click("codebutler.retry", turn_id, "9000.000001"))
        run = await parent.run(0)
        assert run.request.session_id == "session-9"
        assert "report that first" in run.request.prompt
        assert "rename the module" not in run.request.prompt  # the session has it
        await parent.until(lambda: parent.updates)
        assert parent.updates[0].target == "9000.000001"
        assert "Continued" in text_of(parent.updates[0])
        assert blocks_of(parent.updates[0]) == ()
        run.finish("Half was done, now all is.", "session-9")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        await parent.stored(parent.deliver(click("codebutler.retry", turn_id, "9000.000001", "500.2")))
        told = await parent.post_with("already decided")
        assert (told.only_for, told.thread) == (USER, "100.1")
        await parent.stored(parent.deliver(click("codebutler.drop", turn_id, "9000.000001", "500.3")))
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(parent.deliver(click("codebutler.retry", turn_id, "9000.000001", "500.4")))
        await parent.until(parent.is_idle, flow=True)
        assert parent.backend.runs == []
        assert parent.reactions("100.1") == []


async def test_continue_tells_again_what_the_agent_never_got(tmp_path: Path) -> None:
    await die_while_running(tmp_path, started=False)
    async with worker(settings(tmp_path)) as parent:
        turn_id = buttons(await parent.post_with("rename"))["codebutler.retry"]
        parent.deliver(click("codebutler.retry", turn_id, "9000.000001"))
        run = await parent.run(0)
        assert run.request.session_id is None
        assert "rename the module\nand fix the tests" in run.request.prompt


async def test_drop_ends_it(tmp_path: Path) -> None:
    await die_while_running(tmp_path)
    async with worker(settings(tmp_path)) as parent:
        turn_id = buttons(await parent.post_with("rename"))["codebutler.drop"]
        parent.deliver(click("codebutler.drop", turn_id, "9000.000001"))
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])
        await parent.stored(parent.deliver(click("codebutler.retry", turn_id, "9000.000001", "500.2")))
        assert parent.backend.runs == []


async def test_a_second_death_asks_again(tmp_path: Path) -> None:
    await die_while_running(tmp_path)
    async with worker(settings(tmp_path)) as parent:
        turn_id = buttons(await parent.post_with("rename"))["codebutler.retry"]
        parent.deliver(click("codebutler.retry", turn_id, "9000.000001"))
        await parent.run(0)
    async with worker(settings(tmp_path)) as parent:
        question = await parent.post_with("rename the module")
        assert buttons(question)["codebutler.retry"] != turn_id
        assert len(parent.posts) == 1


@pytest.mark.parametrize("reason", ["max_turns", "stalled"])
async def test_a_turn_that_was_cut_short_can_be_continued(
    tmp_path: Path, reason: Literal["max_turns", "stalled"]
) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("a long task", "100.1")
        run = await parent.run(0)
        run.does(Started("session-3"), Finished(False, "It ended early.", reason, Usage(1, 2, 0.1, 10)))
        failure = await parent.post_with("It ended early.")
        await parent.until(lambda: parent.reactions("100.1") == ["x"])
        parent.deliver(click("codebutler.retry", buttons(failure)["codebutler.retry"], "9000.000001"))
        follow_up = await parent.run(1)
        assert follow_up.request.session_id == "session-3"
        assert "limit" in follow_up.request.prompt
        follow_up.finish("All done.", "session-3")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])


async def test_what_was_not_taken_is_sent_again_as_unsure_with_its_id(tmp_path: Path) -> None:
    async with worker(settings(tmp_path), mute=True) as parent:
        parent.says("hello", "100.1")
        (await parent.run(0)).finish("Hi.")
        await parent.post_with("Hi.")
        before = [(send.op_id, send.operation) for send in parent.said(Send)]
        assert not any(send.unsure for send in parent.said(Send))
    async with worker(settings(tmp_path)) as parent:
        await parent.until(lambda: len(parent.said(Send)) >= len(before))
        again = [(send.op_id, send.operation) for send in parent.said(Send)]
        assert again[: len(before)] == before
        assert all(send.unsure for send in parent.said(Send))
        await parent.until(parent.is_idle, flow=True)
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(parent.says("again", "200.1"))
        assert not any(send.unsure for send in parent.said(Send))


async def test_the_progress_of_a_turn_that_is_over_is_sent_no_more(tmp_path: Path) -> None:
    """It may have been sent before, so the parent looks for it; what is not there stays away."""
    async with worker(settings(tmp_path, verbosity="normal"), mute=True) as parent:
        parent.says("hello", "100.1")
        (await parent.run(0)).finish("Hi.")
        await parent.post_with("Hi.")
    async with worker(settings(tmp_path, verbosity="normal"), mute=True) as parent:
        await parent.post_with("Hi.")
        again = {send.op_id: send.operation for send in parent.said(Send) if send.unsure}
        progress = [each for each in again.values() if isinstance(each, Post) and each.value == "progress"]
        assert progress
        assert progress[0].outdated
        assert not any(
            each.outdated for each in again.values() if isinstance(each, Post) and each.value != "progress"
        )


async def test_queued_messages_run_after_a_death(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, debounce_s=3)) as parent:
        await parent.stored(parent.says("later", "100.1"))
    async with worker(settings(tmp_path, debounce_s=3)) as parent:
        run = await parent.run(0)
        assert run.request.prompt == "later"


async def test_the_question_names_what_the_turn_was_last_seen_doing(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal")) as parent:
        parent.says("run the tests", "100.1")
        run = await parent.run(0)
        run.does(Started("s"), ToolUse("t1", "Bash", "make test"))
        await parent.until(
            lambda: any("make test" in text_of(update) for update in parent.updates), flow=True
        )
    async with worker(settings(tmp_path)) as parent:
        assert "`Bash: make test`" in text_of(await parent.post_with("run the tests"))
        assert text_of(parent.updates[0]) == "⚠️ interrupted"


async def test_a_store_of_a_newer_version_ends_the_worker_for_good(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)):
        pass
    store = tmp_path / ".codebutler" / "store.db"
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    ours, theirs = socket.socketpair()
    clock = ManualClock()
    backend = ScriptedBackend(clock)
    home = Home(tmp_path / "home")
    serving = asyncio.create_task(serve(theirs, clock, lambda told, _clock: OneAgent(backend, told), home))
    parent = Parent(await MessagePipe.over(ours, to_parent_codec()), clock, backend)
    listening = asyncio.create_task(parent.listen())
    await parent.until(lambda: parent.said(Hello))
    parent.channel.send(Configure(settings=settings(tmp_path)))
    assert await serving == 78
    await parent.until(lambda: parent.said(Goodbye))
    assert any(record.tag == "ERR" and "newer" in record.text for record in parent.said(Log))
    await listening
    parent.channel.close()
    await parent.channel.wait_closed()


async def test_an_answer_outlives_a_store_that_cannot_be_written_for_a_while(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"))
        await parent.until(lambda: b"session-1" in _sessions(tmp_path))
        await parent.until(lambda: parent.said(Heartbeat)[-1].outbox == 0, flow=True)
        blocker = sqlite3.connect(tmp_path / ".codebutler" / "store.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        run.does(Finished(True, "Worth keeping.", "done"))
        await parent.until(lambda: [line for line in parent.logs("ERR") if "answer is waiting" in line])
        assert parent.posts == []
        blocker.execute("ROLLBACK")
        blocker.close()
        await parent.post_with("Worth keeping.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert len(parent.posts) == 1


async def test_what_is_said_at_the_end_is_one_commit_with_the_answer_first(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal"), mute=True) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        await parent.post_with("working")  # the last operation of the beginning
        before = len(parent.operations)
        run.finish("Done.")
        await parent.until(lambda: parent.logs("RSP"))
        # The progress edit waits for its post's ts, the marks for the answer; and nobody needs progress any more.
        answer, progress = (each for each in parent.operations[before:] if isinstance(each, Post))
        assert (answer.value, answer.outdated) == ("answer", False)
        assert (progress.value, progress.outdated) == ("progress", True)
        assert len(parent.operations) == before + 2


async def restart_while_running(repo: Path, *, agent: str | None = None) -> None:
    """A planned restart ends a turn whose agent takes longer than it is given."""
    async with worker(settings(repo)) as parent:
        parent.says("rename the module", "100.1", prefix=agent)
        run = await parent.run(0)
        run.does(Started("session-9"))
        await parent.until(lambda: b"session-9" in _sessions(repo))
        await parent.shut_down("restart", grace_s=0.6)
        told = [text_of(post) for post in parent.posts]
        assert told == ["🔄 CodeButler is restarting. This run resumes as soon as it is back."]


async def test_after_a_planned_restart_a_turn_goes_on_once_in_its_session(tmp_path: Path) -> None:
    await restart_while_running(tmp_path)
    async with worker(settings(tmp_path)) as parent:
        run = await parent.run(0)
        assert run.request.session_id == "session-9"
        assert "Look at what is done and what is not" in run.request.prompt
        assert [act.decision for act in parent.said(Audit)][:1] == ["restarted"]
        run.finish("Renamed.", "session-9")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        assert not any("machine stopped" in text_of(post) for post in parent.posts)
    async with worker(settings(tmp_path)) as parent:
        await parent.clock.advance(60)
        assert parent.backend.runs == []


async def test_a_crash_after_the_restart_is_asked_about_like_any(tmp_path: Path) -> None:
    await restart_while_running(tmp_path)
    async with worker(settings(tmp_path)) as parent:
        (await parent.run(0)).does(Started("session-9"))
        await parent.until(lambda: parent.is_idle() or parent.said(Heartbeat)[-1].running == 1)
    async with worker(settings(tmp_path)) as parent:
        question = await parent.post_with("The machine stopped")
        assert set(buttons(question)) == {"codebutler.retry", "codebutler.drop"}
        assert parent.backend.runs == []


async def test_a_restart_that_took_long_is_asked_about(tmp_path: Path) -> None:
    await restart_while_running(tmp_path)
    with sqlite3.connect(tmp_path / ".codebutler" / "store.db") as connection:
        connection.execute("UPDATE turns SET not_before = '2025-12-31T00:00:00.000000+00:00'")
    connection.close()
    async with worker(settings(tmp_path)) as parent:
        await parent.post_with("The machine stopped")
        assert parent.backend.runs == []


async def test_a_stop_is_no_restart(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("rename the module", "100.1")
        await parent.run(0)
        await parent.shut_down("shutdown", grace_s=0.6)
    async with worker(settings(tmp_path)) as parent:
        await parent.post_with("The machine stopped")
        assert parent.backend.runs == []
