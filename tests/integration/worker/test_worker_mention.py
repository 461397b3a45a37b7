"""With ``agent.mention: mention``: who answers a card or types into a program need not call the app by name."""

from __future__ import annotations

from pathlib import Path

from codebutler.domain.model import Prompt
from codebutler_worker.agents.backend import Approval, Finished, Question, Started, Text
from tests.events import posted
from tests.worker_kit import CHANNEL, USER, Parent, Run, settings, worker

COMMAND = Approval("req-1", "Bash", "touch a", {"command": "touch a"})
COLOUR = Question("req-2", "Which colour?", ("Red", "Blue"))


def calls(parent: Parent, text: str, ts: str) -> int:
    event = posted(channel=CHANNEL, ref=ts, user=USER, text=text, mentioned=True)
    return parent.deliver(event, Prompt(text=text))


async def begun(parent: Parent) -> Run:
    calls(parent, "go", "100.1")
    run = await parent.run(0)
    run.does(Started("session-1"))
    return run


async def test_a_typed_yes_decides_and_other_talk_starts_nothing(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, mention="mention")) as parent:
        run = await begun(parent)
        run.does(COMMAND)
        await parent.post_with("Permission needed")
        await parent.stored(parent.says("what do you all think?", "9000.1", "100.1"))
        await parent.stored(parent.says("yes", "9000.2", "100.1"))
        await parent.until(lambda: parent.backend.answers)
        assert [answer.allow for _, answer in parent.backend.answers] == [True]
        run.finish("Done.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        await parent.until(parent.is_idle, flow=True)
        assert len(parent.backend.runs) == 1
        assert parent.reactions("9000.1") == []


async def test_words_answer_a_question(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, mention="mention")) as parent:
        run = await begun(parent)
        run.does(COLOUR)
        await parent.post_with("Which colour?")
        parent.says("something warmer", "9000.1", "100.1")
        await parent.until(lambda: parent.backend.answers)
        assert [answer.text for _, answer in parent.backend.answers] == ["something warmer"]


async def test_words_answer_a_question_in_passing(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, mention="mention")) as parent:
        run = await begun(parent)
        asked = "<<<SLACK:question>>>Which colour?\n\n- Blue\n- Green<<<END_SLACK>>>"
        run.does(Text(asked), Finished(True, asked, "done"))
        await parent.post_with("Which colour?")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        parent.says("something warmer", "9000.1", "100.1")
        assert (await parent.run(1)).request.prompt == "something warmer"
