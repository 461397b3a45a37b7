"""Turns of the native agent: what people see, what the model is told, and how a turn ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from codebutler.config.schema import NativeSection
from codebutler_worker.agents.backend import (
    Answer,
    Approval,
    Plan,
    Question,
    Started,
    Text,
    ToolResult,
    ToolUse,
    Usage,
)
from codebutler_worker.agents.native.backend import Habits
from codebutler_worker.agents.native.loop import LoopLimits
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    ModelError,
    ModelReply,
    SystemMessage,
    TokenCount,
    ToolCall,
    UserMessage,
)
from codebutler_worker.tools.tool import PlanStep
from tests.integration.native.conftest import Studio, says, session_of
from tests.turns import end

EDIT = ("edit_file", {"path": "src/app.py", "old": "hello", "new": "good day"})
LOOK = ("read_files", {"paths": ["src/app.py"]})


async def test_a_task_is_carried_out_step_by_step(studio: Studio) -> None:
    events = await studio.run(
        "be polite", says("I look.", LOOK), says("", EDIT, call_id="b"), says("It says good day now.")
    )
    assert end(events).ok
    assert end(events).text == "It says good day now."
    assert [event.name for event in events if isinstance(event, ToolUse)] == ["read_files", "edit_file"]
    assert [event.ok for event in events if isinstance(event, ToolResult)] == [True, True]
    assert "good day" in (studio.repo / "src" / "app.py").read_text()
    used = end(events).usage
    assert (used.input_tokens, used.output_tokens, used.turns) == (300, 30, 3)
    assert used.cost_usd == pytest.approx(0.03)
    assert '2\t    return f"hello {name}"' in studio.told()[0]


async def test_the_model_is_told_its_orders_and_the_task(studio: Studio) -> None:
    (studio.repo / "AGENTS.md").write_text("Use tabs.")
    (studio.home / "secret").write_text("not for models")
    (studio.repo / "CLAUDE.md").symlink_to(studio.home / "secret")
    await studio.run("be polite", says("Done."))
    orders, task = studio.model.asked[0].messages
    assert isinstance(orders, SystemMessage)
    assert "Be kind." in orders.content
    assert "Use tabs." in orders.content
    assert "not for models" not in orders.content
    assert task == UserMessage("be polite")
    names = [tool["function"]["name"] for tool in studio.model.asked[0].tools]
    assert "run_terminal_command" in names
    assert "bash" not in names


async def test_a_plan_is_shown_as_it_goes_on(studio: Studio) -> None:
    events = await studio.run(
        "work",
        says("", ("add_subgoal", {"text": "look"}), ("add_subgoal", {"text": "do"})),
        says("", ("update_subgoal", {"number": 1, "state": "done"}), call_id="b"),
        says("Done."),
    )
    plans = [event for event in events if isinstance(event, Plan)]
    assert plans[-1].steps == (PlanStep("look", "done"), PlanStep("do", "pending"))
    assert len(plans) == 3


async def test_a_plan_that_was_left_unfinished_is_shown_when_its_session_goes_on(studio: Studio) -> None:
    add = says("", ("add_subgoal", {"text": "look"}), ("add_subgoal", {"text": "paint"}))
    first = await studio.run(
        "paint", add, says("", ("update_subgoal", {"number": 1, "state": "done"})), says("Later.")
    )
    again = await studio.run("go on", says("Still later."), session_id=session_of(first))
    assert [event for event in again if isinstance(event, Plan)] == [
        Plan((PlanStep("look", "done"), PlanStep("paint", "pending")))
    ]


async def test_what_no_tool_understands_is_told_to_the_model_and_three_in_a_row_end_it(
    studio: Studio,
) -> None:
    events = await studio.run(
        "work",
        says("", ("fly", {})),
        says("", ("read_files", {"colour": "x"}), call_id="b"),
        says("", ("edit_file", {"path": "src/app.py"}), call_id="c"),
    )
    assert (end(events).ok, end(events).reason) == (False, "stalled")
    assert "three unusable answers from the model in a row (edit_file: " in end(events).text
    assert "there is no tool 'fly': the tools are list_files" in studio.told()[0]
    assert "read_files takes paths, first_line, lines." in studio.told()[1]


async def test_a_tool_that_fails_honestly_is_no_reason_to_give_up(studio: Studio) -> None:
    failing: list[tuple[str, dict[str, Any]]] = [
        *(("read_files", {"paths": [f"missing{at}"]}) for at in range(3)),
        *(("edit_file", {"path": "src/app.py", "old": f"nothing {at}", "new": ""}) for at in range(3)),
        *(("run_terminal_command", {"command": f"exit {at + 1}"}) for at in range(3)),
    ]
    script = [says("", call, call_id=f"c{at}") for at, call in enumerate(failing)]
    events = await studio.run("work", *script, says("I could not."))
    assert (end(events).ok, end(events).text) == (True, "I could not.")


async def test_arguments_with_other_names_and_a_fence_around_them_are_understood(studio: Studio) -> None:
    fenced = ToolCall("a", "Read", '```json\n{"file_path": "src/app.py", "limit": "1",}\n```')
    extra = ToolCall(
        "b", "edit_file", '{"file": "src/app.py", "old": "hello", "new": "good day", "mode": "x"}'
    )
    events = await studio.run(
        "work", ModelReply(AssistantMessage("", (fenced, extra)), TokenCount(1, 1)), says("Done.")
    )
    assert end(events).ok
    assert "1\tdef greet(name):" in studio.told()[0]
    assert studio.told()[1].endswith("(Ignored: `mode`. edit_file takes path, old, new, all.)")
    assert "good day" in (studio.repo / "src" / "app.py").read_text()
    assert [event.name for event in events if isinstance(event, ToolUse)] == ["read_files", "edit_file"]


async def test_what_is_sent_back_to_the_service_is_json_whatever_the_model_wrote(studio: Studio) -> None:
    calls = tuple(
        ToolCall(f"c{at}", "read_files", text)
        for at, text in enumerate(("{'path': 'README.md'}", "what?", '{"paths": ["a"]}'))
    )
    await studio.run("work", ModelReply(AssistantMessage("", calls), TokenCount(1, 1)), says("Done."))
    sent = [
        json.loads(call.arguments)
        for message in studio.model.asked[-1].messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]
    assert sent == [{"path": "README.md"}, {"unreadable": "what?"}, {"paths": ["a"]}]
    assert "not valid JSON" in studio.told()[1]


async def test_the_second_same_call_is_warned_of_and_the_third_ends_it_undone(studio: Studio) -> None:
    append = ("run_terminal_command", {"command": "echo x >> made"})
    again = [says("", append, call_id=str(at)) for at in range(3)]
    events = await studio.run("work", *again)
    assert end(events).reason == "stalled"
    assert "the same call (run_terminal_command)" in end(events).text
    assert (studio.repo / "made").read_text() == "x\nx\n"
    assert ["repeating yourself" in told for told in studio.told()] == [False, True]
    later = await studio.run("once more", says("Fine."), session_id=session_of(events))
    assert end(later).ok
    assert studio.told()[-1] == "(not done: the turn ended before)"


async def test_it_ends_at_its_limits(studio: Studio) -> None:
    studio.habits = Habits(limits=LoopLimits(most_turns=2))
    commands = [
        says("", ("run_terminal_command", {"command": f"echo {at}"}), call_id=str(at)) for at in range(3)
    ]
    assert end(await studio.run("work", *commands)).reason == "max_turns"
    assert len(studio.model.asked) == 2


async def test_money_is_a_limit_where_the_price_is_known(studio: Studio) -> None:
    studio.habits = Habits(limits=LoopLimits(most_turns=9, most_usd=0.01))
    events = await studio.run("work", says("", LOOK), says("Done."))
    assert (end(events).reason, len(studio.model.asked)) == ("limit", 1)


async def test_without_a_price_tokens_are_told_and_no_money(studio: Studio) -> None:
    studio.cost = lambda _: None
    events = await studio.run("work", says("Done."))
    assert end(events).usage == Usage(100, 10, None, 1)
    assert end(events).total_cost_usd is None


async def test_end_turn_ends_it_with_its_answer(studio: Studio) -> None:
    events = await studio.run("work", says("", ("end_turn", {"answer": "All is well."}), LOOK))
    assert (end(events).ok, end(events).text) == (True, "All is well.")
    events = await studio.run("work", says("", ("end_turn", {"answer": "Which one?", "needs_user": True})))
    assert (end(events).ok, end(events).text) == (True, "Which one?")
    assert studio.log()[-1]["stopped_reason"] == "needs_user"


async def test_a_question_waits_for_its_answer(studio: Studio) -> None:
    studio.answer = lambda event: Answer(True, "the red one") if isinstance(event, Question) else None
    ask = ("ask_user", {"question": "Which?", "options": ["red", "blue"]})
    events = await studio.run("work", says("", ask), says("Red it is."))
    question = next(event for event in events if isinstance(event, Question))
    assert (question.text, question.options) == ("Which?", ("red", "blue"))
    assert studio.told() == ["the red one"]


async def test_a_question_without_an_answer_ends_the_turn_with_it(studio: Studio) -> None:
    studio.answer = lambda event: Answer(False, "too late") if isinstance(event, Question) else None
    events = await studio.run("work", says("", ("ask_user", {"question": "Which?"})))
    assert (end(events).ok, end(events).text) == (True, "Which?")


async def test_a_file_is_sent_as_an_envelope(studio: Studio) -> None:
    events = await studio.run("work", says("", ("send_file", {"path": "README.md"})), says("Sent."))
    assert Text("<<<SLACK:file>>>README.md<<<END_SLACK>>>") in events


async def test_what_is_said_meanwhile_reaches_the_running_turn(studio: Studio) -> None:
    studio.model.play(says("", LOOK), says("Done."), says("And blue."))
    request = studio.request("paint it red")
    steered = False
    async with asyncio.timeout(60):
        async for event in studio.agent().start(request):
            if isinstance(event, Text) and event.text == "Done.":
                steered = await studio.agent().steer(request.turn_id, "no, blue")
            last = event
    assert steered
    assert end([last]).text == "Done.\n\nAnd blue."
    assert studio.model.asked[-1].messages[-1] == UserMessage("no, blue")
    assert not await studio.agent().steer(request.turn_id, "too late")


async def test_a_stop_ends_it_in_the_middle_of_a_command_and_the_session_goes_on(studio: Studio) -> None:
    studio.model.play(says("", ("run_terminal_command", {"command": "echo go; sleep 300", "wait_s": 300})))
    request = studio.request("wait")
    found = []
    async with asyncio.timeout(60):
        async for event in studio.agent().start(request):
            found.append(event)
            if isinstance(event, ToolUse):
                await studio.agent().stop(request.turn_id)
    assert end(found).reason == "stopped"
    again = await studio.run("and now?", says("Here."), session_id=session_of(found))
    assert end(again).text == "Here."
    assert "the result of this call is unknown" in studio.told()[0]


async def test_a_stop_ends_it_while_it_asks(studio: Studio) -> None:
    studio.model.play(says("", ("ask_user", {"question": "Which?"})))
    request = studio.request("work")
    found = []
    async with asyncio.timeout(60):
        async for event in studio.agent().start(request):
            found.append(event)
            if isinstance(event, Question):
                await studio.agent().stop(request.turn_id)
    assert end(found).reason == "stopped"


async def test_its_time_is_limited(studio: Studio) -> None:
    studio.habits = Habits(limits=LoopLimits(most_turns=9), timeout_s=1.5)
    wait = ("run_terminal_command", {"command": "sleep 300", "wait_s": 300})
    finished = end(await studio.run("work", says("", wait)))
    assert (finished.ok, finished.reason) == (False, "timeout")
    assert "native.timeout" in finished.text
    assert studio.log()[-1]["stopped_reason"] == "timeout"


async def test_a_model_that_fails_is_a_result(studio: Studio) -> None:
    for trouble, reason in (
        ("auth", "auth"),
        ("limit", "limit"),
        ("overloaded", "overloaded"),
        ("refused", "failed"),
    ):
        error = ModelError(trouble, "the model service says no", 60.0 if trouble == "limit" else None)  # type: ignore[arg-type]
        finished = end(await studio.run("work", error))
        assert (finished.ok, finished.reason, finished.text) == (False, reason, "The model service says no")
        assert (finished.resets_at_s is not None) == (trouble == "limit")


async def test_one_session_has_one_turn(studio: Studio) -> None:
    first = await studio.run("work", says("Done."))
    session = session_of(first)
    studio.model.play(says("", ("run_terminal_command", {"command": "sleep 300", "wait_s": 300})))
    request = studio.request("long", session)
    async with asyncio.timeout(60):
        async for event in studio.agent().start(request):
            if isinstance(event, ToolUse):
                busy = [event async for event in studio.agent().start(replace(request, turn_id="other"))]
                assert "already working" in end(busy).text
                await studio.agent().stop(request.turn_id)


async def test_the_terminal_stands_where_the_last_turn_left_it(studio: Studio) -> None:
    first = await studio.run("go", says("", ("run_terminal_command", {"command": "cd src"})), says("Done."))
    await studio.run(
        "where?",
        says("", ("run_terminal_command", {"command": "pwd"})),
        says("There."),
        session_id=session_of(first),
    )
    assert studio.told()[-1].startswith(f"{studio.repo}/src\n")


async def test_the_log_is_one_object_a_line(studio: Studio) -> None:
    await studio.run("work", says("", ("run_terminal_command", {"command": "exit 3"})), says("Done."))
    lines = studio.log()
    assert [line["event"] for line in lines] == ["model", "tool", "model", "end"]
    tool = lines[1]
    assert (tool["container_id"], tool["argv"], tool["exit_code"]) == ("none", ["bash", "-c", "exit 3"], 3)
    assert {"duration_s", "truncated", "time", "session"} <= tool.keys()
    assert lines[-1]["stopped_reason"] == "done"
    assert lines[-1]["input_tokens"] == 200


def approvals(events: list[object]) -> list[tuple[str, dict[str, object]]]:
    return [(event.tool, event.input) for event in events if isinstance(event, Approval)]


WRITE = ("write_file", {"path": "made", "content": "x"})
RUN = ("run_terminal_command", {"command": "echo x > ran"})


@pytest.mark.parametrize(
    ("mode", "asked"),
    [("bypassPermissions", []), ("acceptEdits", ["Bash"]), ("ask", ["Write", "Bash"]), ("plan", [])],
)
async def test_permission_modes_mean_what_they_mean_everywhere(
    studio: Studio, mode: str, asked: list[str]
) -> None:
    studio.habits = Habits(limits=LoopLimits(most_turns=9), mode=mode)  # type: ignore[arg-type]
    studio.answer = lambda event: Answer(True) if isinstance(event, Approval) else None
    events = await studio.run("work", says("", LOOK, WRITE, RUN), says("Done."))
    assert end(events).ok
    assert [tool for tool, _ in approvals(list(events))] == asked
    done = mode != "plan"
    assert ((studio.repo / "made").exists(), (studio.repo / "ran").exists()) == (done, done)
    if asked:
        assert ("Bash", {"command": "echo x > ran"}) in approvals(list(events))


async def test_calls_of_one_answer_are_asked_for_together(studio: Studio) -> None:
    studio.habits = Habits(limits=LoopLimits(most_turns=9), mode="ask")
    studio.model.play(says("", WRITE, LOOK, RUN, ("write_file", {"path": 3})), says("Done."))
    request = studio.request("work")
    asked: list[str] = []
    async with asyncio.timeout(60):
        async for event in studio.agent().start(request):
            if isinstance(event, Approval):
                asked.append(event.id)
            if len(asked) == 2:
                assert not (studio.repo / "made").exists()
                assert [
                    await studio.agent().answer(request.turn_id, each, Answer(True)) for each in asked
                ] == [True] * 2
                asked.append("answered")
    assert len(asked) == 3
    assert (studio.repo / "made").exists()
    assert (studio.repo / "ran").exists()
    assert len(studio.told()) == 4


async def test_what_is_refused_is_not_done_and_the_model_hears_why(studio: Studio) -> None:
    studio.habits = Habits(limits=LoopLimits(most_turns=9), mode="ask")
    studio.answer = lambda event: Answer(False, "not there") if isinstance(event, Approval) else None
    await studio.run("work", says("", WRITE), says("Fine."))
    assert not (studio.repo / "made").exists()
    assert studio.told() == ["The person refused this call: not there"]


async def test_a_person_who_says_no_is_no_mistake_of_the_models(studio: Studio) -> None:
    studio.habits = Habits(limits=LoopLimits(most_turns=9), mode="ask")
    studio.answer = lambda event: Answer(False) if isinstance(event, Approval) else None
    tries = [
        says("", ("write_file", {"path": "made", "content": str(at)}), call_id=str(at)) for at in range(4)
    ]
    assert end(await studio.run("work", *tries, says("Fine."))).text == "Fine."


async def test_a_plan_that_somebody_agrees_to_may_be_carried_out_step_by_step(studio: Studio) -> None:
    studio.habits = Habits(limits=LoopLimits(most_turns=9), mode="plan")
    studio.section = NativeSection(permission_mode="plan")
    studio.answer = lambda event: Answer(True) if isinstance(event, Approval) else None
    propose = ("propose_plan", {"plan": "1. write it"})
    events = await studio.run(
        "work", says("", WRITE), says("", propose, call_id="b"), says("", WRITE), says("Done.")
    )
    assert approvals(list(events)) == [
        ("ExitPlanMode", {"plan": "1. write it"}),
        ("Write", {"file_path": "made", "content": "x"}),
    ]
    assert (studio.repo / "made").read_text() == "x"


async def test_a_session_that_is_gone_is_begun_anew_and_says_so(studio: Studio) -> None:
    events = await studio.run("work", says("Done."), session_id="native-" + "0" * 32)
    assert isinstance(events[0], Started)
    assert events[0].fresh
