"""Sessions on disk: kept step by step, taken up again after a crash, hidden, and shortened when they grow too long."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.domain.errors import StoreError
from codebutler_worker.agents.backend import ToolUse
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    ModelError,
    ModelReply,
    ModelRequest,
    SystemMessage,
    TokenCount,
    ToolMessage,
    UserMessage,
)
from codebutler_worker.agents.native.services import Dialect
from codebutler_worker.agents.native.sessions import NativeSessions, SaidRecord, Session, mended
from codebutler_worker.agents.native.wire import body
from tests.integration.native.conftest import Studio, says, session_of
from tests.integration.native.tasks import Calls
from tests.turns import end

NOW_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def kept(studio: Studio) -> Path:
    (found,) = (studio.repo / ".codebutler" / "native").iterdir()
    return found


async def test_a_later_turn_knows_the_earlier_ones_also_in_another_process(studio: Studio) -> None:
    first = await studio.run("my name is Ada", says("Hello Ada."))
    studio.backend = None  # as after a restart: nothing is left but what is on disk
    second = await studio.run("what is my name?", says("Ada."), session_id=session_of(first))
    assert session_of(second) == session_of(first)
    said = [message for message in studio.model.asked[-1].messages if not isinstance(message, SystemMessage)]
    assert said == [
        UserMessage("my name is Ada"),
        AssistantMessage("Hello Ada."),
        UserMessage("what is my name?"),
    ]


async def test_only_its_owner_may_read_it(studio: Studio) -> None:
    await studio.run("work", says("Done."))
    assert stat.S_IMODE(kept(studio).stat().st_mode) == 0o600
    assert stat.S_IMODE(kept(studio).parent.stat().st_mode) == 0o700


async def test_every_step_is_on_disk_before_the_next_one(studio: Studio) -> None:
    def looks(prompt: ModelRequest) -> ModelReply:
        lines = kept(studio).read_bytes().splitlines()
        assert sum(b'"said"' in line for line in lines) == len(prompt.messages)
        return says("", ("list_files", {"most": len(prompt.messages)}), call_id=str(len(prompt.messages)))

    await studio.run("work", looks, looks, looks, says("Done."))
    assert len(studio.model.asked) == 4


async def test_a_turn_that_was_cut_off_anywhere_can_be_taken_up(studio: Studio) -> None:
    wait = ("run_terminal_command", {"command": "sleep 300", "wait_s": 300})
    studio.model.play(says("I wait.", wait, ("list_files", {})))
    request = studio.request("wait")
    events = studio.agent().start(request)
    async with asyncio.timeout(60):
        async for event in events:
            if isinstance(event, ToolUse):
                break
    # Nobody gets to tidy up when a worker is killed, and the last line may be half there.
    crashed = kept(studio).read_bytes()
    await events.aclose()
    kept(studio).write_bytes(crashed + b'{"type":"said","mess')
    studio.backend = None
    session_id = kept(studio).stem
    again = await studio.run("go on", says("On I go."), session_id=session_id)
    assert end(again).text == "On I go."
    assert session_of(again) == session_id
    messages = studio.model.asked[-1].messages
    assert [type(message) for message in messages] == [
        SystemMessage,
        UserMessage,
        AssistantMessage,
        ToolMessage,
        ToolMessage,
        UserMessage,
    ]
    assert all("is unknown" in message.content for message in messages if isinstance(message, ToolMessage))


async def test_a_session_that_ended_after_any_of_its_records_can_be_taken_up(studio: Studio) -> None:
    calls: tuple[Calls, ...] = (("add_subgoal", {"text": "look"}), ("list_files", {}))
    events = await studio.run(
        "work",
        says("I plan and look.", *calls),
        says("I run.", ("run_terminal_command", {"command": "cd src; pwd"}), call_id="b"),
        says("Done."),
    )
    session_id = session_of(events)
    records = kept(studio).read_bytes().splitlines(keepends=True)
    assert len(records) > 10
    for count in range(2, len(records) + 1):
        for half in (b"", *(record[: len(record) // 2] for record in records[count : count + 1])):
            kept(studio).write_bytes(b"".join(records[:count]) + half)
            studio.backend = None
            again = await studio.run("go on", says("On I go."), session_id=session_id)
            assert (session_of(again), end(again).text) == (session_id, "On I go."), count
            messages = list(studio.model.asked[-1].messages)
            assert messages == mended(messages)
            assert messages[-1] == UserMessage("go on")
            # What was on disk before the end is known now.
            known = sum(b'"said"' in record for record in records[:count])
            assert len([each for each in messages[:-1] if "is unknown" not in each.content]) == known


async def test_each_request_begins_as_the_one_before_ended(studio: Studio) -> None:
    steps = [says("Look.", ("list_files", {"most": at}), call_id=str(at)) for at in range(1, 8)]
    first = await studio.run("work", *steps, says("Done."))
    await studio.run("more", says("Done."), session_id=session_of(first))
    bodies = [body("m", prompt, Dialect("own")) for prompt in studio.model.asked]
    for before, now in itertools.pairwise(bodies):
        assert now.startswith(before.removesuffix(b"]}"))


async def test_a_conversation_that_grows_too_long_is_shortened_and_goes_on(studio: Studio) -> None:
    (studio.repo / "long.txt").write_text("some words on a line\n" * 300)
    studio.context = 20_000
    steps = [
        says("", ("read_files", {"paths": ["long.txt"], "lines": 600 + at}), call_id=str(at), tokens=0)
        for at in range(1, 9)
    ]
    events = await studio.run("count the words", *steps, says("Many."))
    assert end(events).text == "Many."
    last = studio.model.asked[-1].messages
    assert last[1] == UserMessage("count the words")
    assert any("were let go to make room" in text for text in studio.told())
    assert "cleaned" in [line["event"] for line in studio.log()]
    again = await studio.run("and?", says("Still many."), session_id=session_of(events))
    assert end(again).ok
    assert studio.model.asked[-1].messages[: len(last)] == last


async def test_what_is_still_too_long_is_summed_up(studio: Studio) -> None:
    studio.context = 4000
    steps = [
        says("words " * 400, ("list_files", {"most": at}), call_id=str(at), tokens=0) for at in range(1, 7)
    ]
    summary = says("Six times words were said.")

    def plays(prompt: ModelRequest) -> ModelReply:
        last = prompt.messages[-1]
        if isinstance(last, UserMessage) and "summary that you write now" in last.content:
            return summary
        return steps.pop(0) if steps else says("Done.")

    events = await studio.run("say many words", *[plays] * 20)
    assert end(events).text == "Done."
    task = studio.model.asked[-1].messages[1]
    assert task.content.startswith("say many words\n")
    assert "Six times words were said." in task.content


async def test_the_task_of_a_later_turn_outlives_a_summary(studio: Studio) -> None:
    first = await studio.run("say hello", says("Hello."))
    studio.context = 4000
    studio.backend = None
    steps = [
        says("words " * 400, ("list_files", {"most": at}), call_id=str(at), tokens=0) for at in range(1, 7)
    ]
    steps.insert(5, says())

    def plays(prompt: ModelRequest) -> ModelReply:
        last = prompt.messages[-1]
        if isinstance(last, UserMessage) and "summary that you write now" in last.content:
            return says("Words were said.")
        return steps.pop(0) if steps else says("Done.")

    events = await studio.run("say many words", *[plays] * 20, session_id=session_of(first))
    assert end(events).text == "Done."
    people = [
        message.content for message in studio.model.asked[-1].messages if isinstance(message, UserMessage)
    ]
    assert people[0].startswith("say hello\n")
    assert any("say many words" in text for text in people)


async def test_a_service_that_takes_less_than_we_thought_gets_less(studio: Studio) -> None:
    (studio.repo / "long.txt").write_text("word " * 9000)
    looks = [
        says("", ("read_files", {"paths": ["long.txt"], "lines": at}), call_id=str(at)) for at in range(1, 9)
    ]
    too_long = ModelError("too_long", "the conversation is too long for the model")
    events = await studio.run("work", *looks, too_long, says("Short now."))
    assert end(events).text == "Short now."
    assert any("were let go" in text for text in studio.told())


def test_old_sessions_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".codebutler").mkdir()
    sessions = NativeSessions(tmp_path, 30)
    old = sessions.begin("then", NOW_S)
    old.append([SaidRecord(SystemMessage("orders"))])
    old.close()
    assert sessions.resume(old.id) is not None
    file = tmp_path / ".codebutler" / "native" / f"{old.id}.jsonl"
    os.utime(file, (NOW_S, NOW_S))
    sessions.begin("now", NOW_S + 31 * 86_400).close()
    assert sessions.resume(old.id) is None


@pytest.mark.parametrize("name", ["../../x", "native-1", "native-" + "0" * 31 + "/", ""])
def test_no_session_id_is_a_path(tmp_path: Path, name: str) -> None:
    (tmp_path / ".codebutler").mkdir()
    assert NativeSessions(tmp_path, 30).resume(name) is None


def test_no_session_is_kept_through_a_link(tmp_path: Path) -> None:
    (tmp_path / ".codebutler").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".codebutler" / "native").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        NativeSessions(tmp_path, 30).begin("now", NOW_S)
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_without_room_for_its_session_an_agent_does_nothing(studio: Studio) -> None:
    (studio.repo / ".codebutler" / "native").write_text("in the way")
    finished = end(await studio.run("work", says("Done.")))
    assert (finished.ok, finished.reason) == (False, "unavailable")
    assert "cannot be saved" in finished.text
    assert studio.model.asked == []


def test_a_full_disk_is_said_in_one_line() -> None:
    journal = Session(os.open("/dev/full", os.O_WRONLY), "native-x")
    with pytest.raises(
        StoreError,
        match=r"^the agent's session cannot be saved: No space left on device: free some disk space$",
    ):
        journal.append([SaidRecord(UserMessage("x"))])
    journal.close()


def test_tokens_add_up() -> None:
    assert TokenCount(1, 2, 1) + TokenCount(3, 4, 0) == TokenCount(4, 6, 1)
    assert replace(ModelReply(AssistantMessage("x")), cut=True).cut
