"""The real Claude Code against the tests' own model server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import (
    AgentEvent,
    Answer,
    Approval,
    Plan,
    Question,
    Refusal,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    Writing,
)
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.running import AgentContext
from tests.claude_desk import Desk, agent_env, bash, last, one, replace_section, until
from tests.modelserver.server import Call, Reply
from tests.walls import NoWalls


async def test_a_tool_turn_edits_a_file(desk: Desk) -> None:
    target = desk.repo / "note.txt"
    saying = "I write the note that was asked for into a file of its own."
    desk.model.play(
        Reply(
            saying,
            thoughts="A file, then.",
            calls=(Call("Write", {"file_path": str(target), "content": "hello\n"}),),
        ),
        Reply("Done."),
    )
    events = await desk.run("write a note", system_prompt="HOUSE RULES")
    assert target.read_text() == "hello\n"
    assert one(events, ToolUse).summary == "note.txt"
    assert one(events, ToolResult).ok
    assert [event.text for event in events if isinstance(event, Text)] == [saying, "Done."]
    assert [event.text for event in events if isinstance(event, Thinking)] == ["", "A file, then."]
    written = [event.text for event in events if isinstance(event, Writing)]
    assert written
    assert all(saying.startswith(text) for text in written)
    end = last(events)
    assert (end.ok, end.text, end.reason) == (True, "Done.", "done")
    assert (end.usage.input_tokens, end.usage.output_tokens, end.usage.turns) == (200, 40, 2)
    assert "HOUSE RULES" in desk.model.said(0)


async def test_the_answer_is_all_that_was_said_since_the_last_work(desk: Desk) -> None:
    asking = desk.with_settings(replace_section(desk, permission_mode="ask"))
    todos = [{"content": "Find it", "status": "completed", "activeForm": "Finding it"}]
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    asked = {"question": "Which?", "header": "Colour", "options": options, "multiSelect": False}
    look = Call("Read", {"file_path": str(desk.repo / "README.md")})
    desk.model.play(
        Reply("I look.", (look,)),
        Reply("It is the cache.\n\n- line 7", (Call("TodoWrite", {"todos": todos}),)),
        Reply("It may be red.", (Call("AskUserQuestion", {"questions": [asked]}),)),
        Reply("Then that is all."),
    )
    events: list[AgentEvent] = []
    async for event in asking.backend.start(desk.turn("look")):
        events.append(event)
        if isinstance(event, Question):
            assert await asking.backend.answer("t1", event.id, Answer(allow=True, text="Blue"))
    assert last(events).text == "It is the cache.\n\n- line 7\n\nIt may be red.\n\nThen that is all."
    await asking.backend.close()


async def test_parts_that_were_cut_off_are_one_answer(desk: Desk) -> None:
    desk.model.play(Reply("The first half of a sen", cut=True), Reply("tence, and its end."))
    assert last(await desk.run("tell me")).text == "The first half of a sentence, and its end."
    desk.model.play(*[Reply(f"part {at} ", cut=True) for at in range(4)])
    end = last(await desk.run("tell me all"))
    assert end.ok
    assert end.text.startswith("part 0 part 1 part 2 part 3\n\n_⚠️ The answer stops here")


async def test_the_next_message_resumes_the_session_and_costs_are_differences(desk: Desk) -> None:
    desk.model.play(Reply("one"), Reply("two"))
    first = await desk.run("first")
    session = one(first, Started).session_id
    total = last(first).total_cost_usd
    assert total
    second = await desk.run("second", session_id=session, cost_before_usd=total)
    assert last(second).usage.cost_usd == pytest.approx(total)
    assert last(second).total_cost_usd == pytest.approx(2 * total)
    assert "first" in desk.model.said()


async def test_a_session_is_resumed_by_another_process(desk: Desk) -> None:
    desk.model.play(Reply("one"), Reply("two"))
    started = one(await desk.run("remember the word xylophone"), Started)
    assert started.model
    await desk.backend.close()
    again = desk.with_settings(desk.backend._settings)
    events = await again.run("which word?", session_id=started.session_id)
    assert one(events, Started) == started
    assert last(events).text == "two"
    assert "xylophone" in desk.model.said()
    await again.backend.close()


async def test_an_unknown_session_is_replaced_and_the_prompt_resent_once(desk: Desk) -> None:
    desk.model.play(Reply("fresh answer"))
    events = await desk.run("hello", session_id="11111111-1111-4111-8111-111111111111", cost_before_usd=5.0)
    assert one(events, Started).fresh
    assert last(events).text == "fresh answer"
    assert len(desk.model.requests) == 1
    cost = last(events).usage.cost_usd
    assert cost is not None
    assert cost < 1


async def test_a_session_that_the_service_rejects_is_replaced_once(desk: Desk) -> None:
    desk.model.play(Reply("one"))
    session = one(await desk.run("first"), Started).session_id
    desk.model.play(*[Reply(status=400, error="messages.1: tool_use without tool_result")] * 12)
    events = await desk.run("second", session_id=session)
    starts = [event for event in events if isinstance(event, Started)]
    assert [start.fresh for start in starts] == [False, True]
    assert last(events).reason == "failed"


async def test_a_wrong_key_says_what_to_do(desk: Desk) -> None:
    desk.model.play(*[Reply(status=401, error="invalid x-api-key")] * 12)
    end = last(await desk.run("hello"))
    assert (end.ok, end.reason) == (False, "auth")
    assert "claude auth login" in end.text
    assert "\n" not in end.text


async def test_a_failing_service_is_told_and_waited_for(desk: Desk) -> None:
    desk.model.play(*[Reply(status=500, error="boom")] * 12)
    events = await desk.run("hello")
    assert "500" in next(event.text for event in events if isinstance(event, Refusal))
    assert last(events).reason == "overloaded"
    assert not [event for event in events if isinstance(event, Text)]


@pytest.mark.parametrize("text", ["/config verbose=true", "/clear now", "!touch owned", "# remember"])
async def test_a_message_is_never_a_command_of_the_cli(desk: Desk, text: str) -> None:
    desk.model.play(Reply("I read it."))
    assert last(await desk.run(text)).text == "I read it."
    assert text in desk.model.said()
    assert not (desk.repo / "owned").exists()


async def test_a_hostile_checkout_runs_nothing_but_its_instructions_arrive(desk: Desk) -> None:
    proof = desk.repo / "owned"
    settings = {
        "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"},
        "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {proof}"}]}]},
    }
    (desk.repo / ".claude").mkdir()
    (desk.repo / ".claude" / "settings.json").write_text(json.dumps(settings))
    servers = {"mcpServers": {"x": {"command": "touch", "args": [str(proof)]}}}
    (desk.repo / ".mcp.json").write_text(json.dumps(servers))
    (desk.repo / "CLAUDE.md").write_text("Use tabs in every file, says MARKER-7.")
    desk.model.play(Reply("hello"))
    assert last(await desk.run("hi")).ok
    assert not proof.exists()
    assert "MARKER-7" in desk.model.said()


async def test_trusted_project_settings_are_left_to_the_cli(desk: Desk) -> None:
    proof = desk.repo / "ran"
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {proof}"}]}]}
    (desk.repo / ".claude").mkdir()
    (desk.repo / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))
    (desk.repo / "CLAUDE.md").write_text("MARKER-8")
    trusting = desk.with_settings(replace_section(desk, project_settings=True))
    desk.model.play(Reply("hello"))
    assert last(await trusting.run("hi")).ok
    assert proof.exists()
    assert desk.model.said().count("MARKER-8") == 1
    await trusting.backend.close()


async def test_long_lines(desk: Desk) -> None:
    target = desk.repo / "long.txt"
    call = Call("Write", {"file_path": str(target), "content": "x" * 200_000})
    desk.model.play(Reply("", (call,)), Reply("written"))
    assert last(await desk.run("write much")).text == "written"
    assert target.stat().st_size == 200_000


async def test_only_named_variables_reach_the_agent(desk: Desk) -> None:
    env = agent_env(desk.model) | {"SLACK_BOT_TOKEN": "xoxb-secret"}
    backend = ClaudeBackend(desk.backend._settings, AgentContext(NoWalls(), SystemClock()), desk.home, env)
    desk.model.play(Reply("", (bash("env > seen.env"),)), Reply("ok"))
    assert last(await replace(desk, backend=backend).run("show")).ok
    assert "SLACK" not in (desk.repo / "seen.env").read_text()
    await backend.close()


async def test_an_approval_is_asked_and_answered(desk: Desk) -> None:
    asking = desk.with_settings(replace_section(desk, permission_mode="ask"))
    calls = (bash("touch yes.txt"),)
    desk.model.play(Reply("", calls), Reply("", (bash("touch no.txt"),)), Reply("end"))
    finished: list[AgentEvent] = []
    verdicts = iter([Answer(allow=True), Answer(allow=False, text="not that one")])
    async for event in asking.backend.start(desk.turn("touch")):
        finished.append(event)
        if isinstance(event, Approval):
            assert await asking.backend.answer("t1", event.id, next(verdicts))
            assert not await asking.backend.answer("t1", event.id, Answer(allow=True))
    assert last(finished).ok
    assert (desk.repo / "yes.txt").exists()
    assert not (desk.repo / "no.txt").exists()
    assert "not that one" in desk.model.said()
    await asking.backend.close()


async def test_a_question_is_asked_and_answered(desk: Desk) -> None:
    asking = desk.with_settings(replace_section(desk, permission_mode="ask"))
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    asked = {"question": "Which colour?", "header": "Colour", "options": options, "multiSelect": False}
    desk.model.play(Reply("", (Call("AskUserQuestion", {"questions": [asked]}),)), Reply("end"))
    events: list[AgentEvent] = []
    async for event in asking.backend.start(desk.turn("ask me")):
        events.append(event)
        if isinstance(event, Question):
            assert (event.text, event.options) == ("Which colour?", ("Red", "Blue"))
            assert await asking.backend.answer("t1", event.id, Answer(allow=True, text="Blue"))
    assert last(events).ok
    assert "Blue" in json.dumps(desk.model.requests[-1]["messages"][-1])
    await asking.backend.close()


async def test_steering_reaches_the_running_turn(desk: Desk) -> None:
    flag = desk.repo / "go"
    wait = f"touch begun; while [ ! -e {flag} ]; do sleep 0.05; done"
    desk.model.play(Reply("", (bash(wait),)), Reply("understood"), Reply("understood"))
    events = desk.backend.start(desk.turn("work"))
    await until(events, ToolUse)
    assert await desk.backend.steer("t1", "also mind the MARKER-9")
    flag.touch()
    rest = [event async for event in events]
    assert last(rest).text == "understood"
    assert any("MARKER-9" in desk.model.said(index) for index in range(len(desk.model.requests)))
    assert not await desk.backend.steer("t1", "too late")


async def test_two_turns_of_one_session_are_not_run_at_once(desk: Desk) -> None:
    desk.model.play(Reply("one"), Reply("held", hold=True))
    session = one(await desk.run("first"), Started).session_id
    events = desk.backend.start(desk.turn("second", session_id=session))
    await until(events, Started)
    other = await desk.run("third", turn_id="t2", conversation="c2", session_id=session)
    assert (last(other).ok, last(other).reason) == (False, "failed")
    desk.model.release.set()
    assert last([event async for event in events]).text == "held"


async def test_the_task_list_is_told_while_it_is_worked_on_and_outlives_the_process(desk: Desk) -> None:
    def update(number: int, status: str) -> Call:
        return Call("TaskUpdate", {"taskId": str(number), "status": status})

    create = tuple(Call("TaskCreate", {"subject": name, "description": name}) for name in ("Read", "Fix"))
    desk.model.play(
        Reply("", (Call("ToolSearch", {"query": "select:TaskCreate,TaskUpdate", "max_results": 5}),)),
        Reply("", create),
        Reply("", (update(1, "completed"), update(2, "in_progress"))),
        Reply("half done"),
        Reply("", (update(2, "completed"),)),
        Reply("", (Call("TaskList", {}),)),
        Reply("done"),
    )
    events = await desk.run("work")
    plans = [event.steps for event in events if isinstance(event, Plan)]
    assert [(step.text, step.state) for step in plans[-1]] == [("Read", "done"), ("Fix", "in_progress")]
    assert not [event for event in events if isinstance(event, ToolUse) and event.name.startswith("Task")]
    session = one(events, Started).session_id
    again = await desk.run("go on", session_id=session)
    listed = [event.text for event in again if isinstance(event, ToolResult)]
    assert any("#2 [completed] Fix" in text for text in listed), listed


async def test_tokens_and_cost_are_told_while_a_tool_runs(desk: Desk) -> None:
    desk.model.play(Reply("", (bash("while [ ! -e go ]; do sleep 0.05; done"),)), Reply("one"))
    seen: list[Usage] = []
    async with asyncio.timeout(30):
        async for event in desk.backend.start(desk.turn("work")):
            if isinstance(event, Usage):
                seen.append(event)
                if event.cost_usd is not None:
                    (desk.repo / "go").touch()
    assert seen[0] == Usage(100, 20, None, 1)
    assert any(usage.cost_usd and usage.input_tokens == 100 for usage in seen)
    assert (seen[-1].input_tokens, seen[-1].output_tokens) == (200, 40)
