"""What the parent is told of conversations: their transcript, and which of them have some words."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from codebutler.domain.model import TurnNote
from codebutler.protocol.conversations import AskFound, AskThread, FoundTold, ThreadTold
from codebutler.protocol.messages import Overview
from codebutler_worker.agents.backend import Approval, Started
from codebutler_worker.conversation.pages import UNKNOWN_THREAD
from tests.events import clicked
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

LONG = Approval("req-2", "Bash", "touch b", {"command": "touch b " + "x" * 1500})
PLAN = Approval("req-3", "ExitPlanMode", "", {"plan": "1. look"})

KEY = "sk-ant-0123456789abcdefghijklmnop"
T = TypeVar("T")


async def talked(parent: Parent, ref: str, question: str, answer: str, thread: str | None = None) -> None:
    number = len(parent.backend.runs)
    parent.says(question, ref, thread)
    (await parent.run(number)).finish(answer)
    await parent.post_with(answer.split(maxsplit=1)[0])


async def told(parent: Parent, question: AskThread | AskFound, kind: type[T], number: int = 0) -> T:
    parent.channel.send(question)
    return (await parent.until(lambda: parent.said(kind)[number:], flow=True))[0]


async def test_a_conversation_is_told_from_its_first_run_to_its_last_without_secrets(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await talked(parent, "100.1", f"why does {KEY} fail?", "Because it is no key.")
        await talked(parent, "200.1", "write a poem", "Roses are red.")
        await talked(parent, "100.2", "say it again", f"Again: {KEY}", thread="100.1")
        found = await told(parent, AskFound(request_id="f1", words="no key"), FoundTold)
        (hit,) = found.runs
        assert (hit.thread, found.request_id) == ("100.1", "f1")
        assert "**no** **key**" in hit.text
        thread = await told(parent, AskThread(request_id="r1", turn=hit.id), ThreadTold)
        assert (thread.request_id, thread.thread, thread.has_more) == ("r1", "100.1", False)
        assert [run.state for run in thread.runs] == ["done", "done"]
        assert thread.runs[0].answer == "Because it is no key."
        assert thread.runs[1].said[0].text == "say it again"
        assert KEY not in str(thread)
        unknown = await told(parent, AskThread(request_id="r2", turn="gone"), ThreadTold, 1)
        assert unknown.problem == UNKNOWN_THREAD


async def test_a_long_conversation_is_told_from_its_newest_runs(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        for number in range(25):
            await talked(parent, f"100.{number + 1:02}", "go on", f"{number} {'x' * 30_000}", thread="100.01")
        found = await told(parent, AskFound(request_id="f1", words="go"), FoundTold)
        thread = await told(parent, AskThread(request_id="r1", turn=found.runs[0].id), ThreadTold)
        assert thread.has_more
        assert [run.answer.partition(" ")[0] for run in thread.runs] == [str(at) for at in range(6, 25)]
        assert all(run.is_cut for run in thread.runs)


async def waiting(parent: Parent, count: int) -> TurnNote:
    """The newest run, once it waits for so many answers."""

    def look() -> list[TurnNote]:
        newest = [overview.turns[0] for overview in parent.said(Overview)[-1:] if overview.turns]
        return [note for note in newest if len(note.asked) == count]

    return (await parent.until(look, flow=True))[0]


async def test_what_a_run_waits_for_is_told_in_full_and_then_what_was_decided(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("do it", "100.1")
        (await parent.run(0)).does(Started("session-1"), LONG, PLAN)
        note = await waiting(parent, 2)
        assert [asked.text for asked in note.asked] == ["", ""]
        thread = await told(parent, AskThread(request_id="r1", turn=note.id), ThreadTold)
        assert [each.is_foreign for each in thread.asked] == [False, True]
        assert "x" * 1500 in thread.asked[0].asked.text
        assert "1. look" in thread.asked[1].asked.text
        parent.deliver(
            clicked(
                channel=CHANNEL,
                user=USER,
                message=note.asked[0].card,
                action_id="codebutler.deny",
                value=note.asked[0].id,
                words="no room",
                press="300.1",
                thread="100.1",
            )
        )
        await waiting(parent, 1)
        later = await told(parent, AskThread(request_id="r2", turn=note.id), ThreadTold, 1)
        assert len(later.asked) == 1
        assert later.runs[0].decided[0].startswith(f"Denied by {USER} (no room): Bash")
