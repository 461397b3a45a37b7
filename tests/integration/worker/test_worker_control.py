"""Stopping, steering, our own words, progress, and the end of a worker."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from codebutler.domain.model import Command, Post, Prompt
from codebutler.protocol.messages import Audit, Heartbeat, Send, SendFailed, StopTurns, Stored
from codebutler_worker.agents.backend import (
    Approval,
    Finished,
    Plan,
    Question,
    Started,
    Text,
    ToolResult,
    ToolUse,
)
from codebutler_worker.tools.tool import PlanStep
from tests.events import clicked, edited, posted
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker


def command(parent: Parent, name: str, ts: str, thread_ts: str | None = None, argument: str = "") -> int:
    event = posted(channel=CHANNEL, ref=ts, user=USER, text=f"!{name} {argument}".strip(), thread=thread_ts)
    return parent.deliver(event, Command(name=name, argument=argument))


async def test_stop_ends_what_runs_and_withdraws_what_waits(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("long work", "100.1")
        run = await parent.run(0)
        await parent.stored(parent.says("and more", "100.2", "100.1"))
        command(parent, "stop", "100.3", "100.1")
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])
        await parent.until(lambda: parent.reactions("100.2") == ["octagonal_sign"])
        assert run.closed.is_set()
        assert [text_of(post) for post in parent.posts] == [
            "🛑 Stopping 1 run. Withdrew 1 queued.",
            "🛑 Stopped before anything was done.",
        ]
        assert parent.posts[0].thread == "100.1"


async def test_stop_in_one_thread_leaves_another_alone(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("long work", "100.1")
        run = await parent.run(0)
        await parent.stored(command(parent, "stop", "200.2", "200.1"))
        assert (await parent.post_with("Nothing to stop")).thread == "200.1"
        assert not run.closed.is_set()


async def test_the_stop_button_stops_its_turn(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal")) as parent:
        parent.says("long work", "100.1")
        await parent.run(0)
        progress = await parent.post_with("working")
        stop = blocks_of(progress)[1]["elements"][0]
        assert stop["action_id"] == "codebutler.stop"
        click = clicked(
            channel=CHANNEL,
            user=USER,
            message="9000.000001",
            action_id="codebutler.stop",
            value=stop["value"],
            press="101.0",
        )
        parent.deliver(click)
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])
        await parent.until(
            lambda: any(re.fullmatch(r"🛑 \d+s", text_of(update)) for update in parent.updates)
        )


async def test_the_operator_is_named_as_the_one_who_stopped(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("long work", "100.1")
        await parent.run(0)
        parent.channel.send(StopTurns(user="operator"))
        assert (await parent.post_with("Stopped by operator")).thread == "100.1"
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])


async def test_steering_puts_a_message_into_the_running_turn(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, busy="steer")) as parent:
        parent.backend.takes_steering = True
        parent.says("paint it red", "100.1")
        run = await parent.run(0)
        parent.says("no, blue", "100.2", "100.1")
        await parent.until(lambda: parent.reactions("100.2") == ["eyes"], flow=True)
        assert parent.backend.steered == ["no, blue"]
        run.finish("Blue it is.")
        await parent.until(lambda: parent.reactions("100.2") == ["white_check_mark"])
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert len(parent.backend.runs) == 1


async def test_what_comes_while_a_message_is_put_in_follows_it(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, busy="steer")) as parent:
        parent.backend.takes_steering = True
        parent.says("paint it red", "100.1")
        run = await parent.run(0)
        parent.backend.may_be_steered.clear()
        parent.says("no, blue", "100.2", "100.1")
        await parent.until(lambda: parent.backend.steered == ["no, blue"])
        await parent.stored(parent.says("and bold", "100.3", "100.1"))
        parent.backend.may_be_steered.set()
        await parent.until(lambda: parent.backend.steered == ["no, blue", "and bold"], flow=True)
        run.finish("Blue and bold.")
        for ts in ("100.1", "100.2", "100.3"):
            await parent.until(lambda ts=ts: parent.reactions(ts) == ["white_check_mark"])  # type: ignore[misc]  # a default of a lambda
        assert len(parent.backend.runs) == 1


async def test_what_is_edited_while_it_is_put_in_is_put_in_again(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, busy="steer")) as parent:
        parent.backend.takes_steering = True
        parent.says("paint it red", "100.1")
        await parent.run(0)
        parent.backend.may_be_steered.clear()
        parent.says("no, blue", "100.2", "100.1")
        await parent.until(lambda: parent.backend.steered == ["no, blue"])
        change = edited(channel=CHANNEL, ref="100.2", user=USER, text="no, green", edit="9.9", thread="100.1")
        await parent.stored(parent.deliver(change, Prompt(text="no, green")))
        parent.backend.may_be_steered.set()
        await parent.until(lambda: parent.backend.steered == ["no, blue", "no, green"], flow=True)


async def test_a_turn_that_cannot_be_steered_leaves_the_message_queued(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, busy="steer")) as parent:
        parent.says("paint it red", "100.1")
        run = await parent.run(0)
        parent.says("no, blue", "100.2", "100.1")
        await parent.until(lambda: parent.backend.steered)
        run.finish("Red.")
        assert (await parent.run(1)).request.prompt == "no, blue"


async def test_a_busy_conversation_may_reject(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, busy="reject")) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        parent.says("more", "100.2", "100.1")
        assert (await parent.post_with("⏳")).thread == "100.1"
        run.finish("Done.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        await parent.until(lambda: parent.reactions("100.2") == ["x"])
        assert len(parent.backend.runs) == 1


async def test_progress_is_one_message_edited_now_and_then(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal")) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0, flow=False)
        assert "claude is working" in text_of(await parent.post_with("working"))
        run.does(
            Started("s"),
            Text("I will look."),
            ToolUse("t1", "Bash", "echo `date` <!here>"),
            ToolResult("t1", True, "ok"),
            ToolUse("t2", "Edit", "app.py"),
            Plan((PlanStep("look", "done"), PlanStep("fix", "in_progress"))),
        )
        await parent.until(lambda: parent.updates, flow=True)
        update = parent.updates[0]
        assert update.target == "9000.000001"
        assert "`Edit: app.py`" in text_of(update)
        assert "2 tool calls" in text_of(update)
        assert "✓ look" in text_of(update)
        run.finish("Done.")
        await parent.post_with("Done.")
        await parent.until(lambda: text_of(parent.updates[-1]).startswith("✅"))
        assert text_of(parent.updates[-1]) == "✅ Done · 2 tool calls"
        assert blocks_of(parent.updates[-1]) == ()
        assert len(parent.posts) == 2


async def test_the_end_of_progress_waits_for_its_message(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal"), mute=True) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.finish("Done.")
        await parent.post_with("Done.")
        assert parent.updates == []
        parent.mute = False
        for send in parent.said(Send):
            parent.take(send)
        await parent.until(lambda: parent.updates)
        assert parent.updates[0].target.startswith("9000.")
        assert text_of(parent.updates[0]).startswith("✅")


async def test_an_agent_that_ends_without_leave_closes_its_cards(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(Started("s"), Approval("a1", "Bash", "rm", {}), Question("q1", "Which one?"))
        run.does(Finished(True, "I did without.", "done"))
        await parent.post_with("I did without.")
        assert parent.backend.answers == []
        await parent.until(lambda: sum("NOT run" in text_of(card) for card in parent.updates) == 2, flow=True)


async def test_a_breaking_agent_fails_its_turn_and_nothing_else(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.events.put_nowait(RuntimeError("a bug"))
        await parent.post_with("CodeButler had an internal error")
        await parent.until(lambda: parent.reactions("100.1") == ["x"])
        parent.says("again", "200.1")
        (await parent.run(1)).finish("Fine.")
        await parent.post_with("Fine.")


async def test_what_was_executed_is_audited(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        (await parent.run(0)).finish()
        audit = (await parent.until(lambda: parent.said(Audit)))[0]
        assert (audit.user, audit.thread, audit.kind, audit.text, audit.decision) == (
            USER,
            "100.1",
            "claude",
            "work",
            "done",
        )


async def test_shutdown_lets_a_turn_finish(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        await parent.stored(parent.says("next", "200.1"))
        run.finish("Done in time.")
        goodbye = await parent.shut_down(grace_s=10)
        assert goodbye.reason == "shutdown"
        await parent.post_with("Done in time.")
        assert parent.reactions("100.1") == ["white_check_mark"]
        assert len(parent.backend.runs) <= 2
    async with worker(settings(tmp_path)) as parent:
        await parent.run(0)


async def test_shutdown_interrupts_what_does_not_finish(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        await parent.shut_down(grace_s=0.3)
        assert run.closed.is_set()
    async with worker(settings(tmp_path)) as parent:
        await parent.post_with("The machine stopped")


async def test_sleep_finishes_what_is_queued_first(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        seq = parent.says("work", "100.1")
        await parent.stored(seq)
        index = next(i for i, m in enumerate(parent.heard) if isinstance(m, Stored))
        loads = [message for message in parent.heard[:index] if isinstance(message, Heartbeat)]
        assert loads[-1].queued + loads[-1].running >= 1  # told before the receipt
        (await parent.run(0)).finish("Awake.")
        await parent.shut_down("sleep", 10)
        await parent.post_with("Awake.")


async def test_an_event_that_breaks_us_is_answered_and_passed(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        store = tmp_path / ".codebutler" / "store.db"
        with sqlite3.connect(store) as connection:
            connection.execute(
                "CREATE TRIGGER poison BEFORE INSERT ON messages WHEN NEW.content = 'poison' "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        connection.close()
        await parent.stored(parent.says("poison", "100.1"))
        assert (await parent.post_with("an internal error")).thread == "100.1"
        await parent.until(lambda: parent.reactions("100.1") == ["x"])
        assert parent.logs("ERR")
        parent.says("one", "200.1")
        (await parent.run(0)).finish("One.")
        await parent.post_with("One.")


async def test_a_lost_session_is_told_of(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("go on", "100.1")
        run = await parent.run(0)
        run.does(Started("session-new", fresh=True))
        assert (await parent.post_with("could not be resumed")).thread == "100.1"


async def test_an_empty_prompt_is_asked_back(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("  ", "100.1", prefix="claude")
        await parent.post_with("Say what I should do")
        await parent.until(lambda: parent.reactions("100.1") == ["x"])
        assert parent.backend.runs == []


async def test_an_agent_that_does_not_stop_is_forced(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.backend.obeys_stop = False
        parent.says("work", "100.1")
        run = await parent.run(0)
        command(parent, "stop", "100.2", "100.1")
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"], flow=True)
        assert run.closed.is_set()


async def test_an_update_of_a_refused_message_is_given_up(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, verbosity="normal"), mute=True) as parent:
        parent.says("work", "100.1")
        (await parent.run(0)).finish("Done.")
        await parent.post_with("Done.")
        await parent.until(lambda: len(parent.said(Audit)) == 1)
        for send in parent.said(Send):
            if isinstance(send.operation, Post) and "working" in text_of(send.operation):
                parent.channel.send(SendFailed(op_id=send.op_id, code="channel_not_found"))
            else:
                parent.take(send)
        parent.mute = False
        await parent.until(parent.is_idle, flow=True)
        assert parent.updates == []
        assert any("channel_not_found" in line for line in parent.logs("WRN"))
