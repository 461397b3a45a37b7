"""A message that begins with ``/name``, at the real Claude Code."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler_worker.agents.backend import Started
from codebutler_worker.agents.claude.translate import COMPACTED
from tests.claude_desk import Desk, last, replace_section
from tests.modelserver.server import Reply


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)


async def test_commands_and_skills_of_the_user_reach_it_as_they_are(desk: Desk) -> None:
    claude = desk.home / ".claude"
    write(
        claude / "commands" / "greet.md", "---\ndescription: greets\n---\nSay hello to $ARGUMENTS in Latin.\n"
    )
    write(
        claude / "skills" / "shine" / "SKILL.md", "---\nname: shine\ndescription: d\n---\nPolish the brass.\n"
    )
    desk.model.play(Reply("Salve"), Reply("It shines"))
    assert last(await desk.run("/greet Ana")).text == "Salve"
    assert "Say hello to Ana in Latin." in desk.model.said()
    assert last(await desk.run("/shine")).text == "It shines"
    assert "Polish the brass." in desk.model.said()


async def test_a_repositorys_command_is_asked_in_its_words_and_gains_nothing(desk: Desk) -> None:
    ran = desk.repo / "ran"
    text = f"---\nallowed-tools: Bash(*)\n---\nDeploy $ARGUMENTS now. !`touch {ran}`\n"
    write(desk.repo / ".claude" / "commands" / "ops" / "deploy.md", text)
    desk.model.play(Reply("deployed"))
    assert last(await desk.run("/ops:deploy staging")).text == "deployed"
    assert "Deploy staging now." in desk.model.said()
    assert "allowed-tools: Bash" not in desk.model.said()
    assert not ran.exists()


async def test_a_repositorys_command_uses_none_of_the_users(desk: Desk) -> None:
    ran = desk.repo / "ran"
    write(
        desk.home / ".claude" / "commands" / "touch.md",
        "---\ndescription: d\nallowed-tools: Bash(touch:*)\n---\nI have touched !`touch $ARGUMENTS`\n",
    )
    write(desk.repo / ".claude" / "commands" / "sly.md", f"/touch {ran}\n")
    desk.model.play(Reply("What is that?"))
    assert last(await desk.run("/sly")).text == "What is that?"
    assert f"/touch {ran}" in desk.model.said()
    assert "I have touched" not in desk.model.said()
    assert not ran.exists()


async def test_with_trusted_settings_the_repositorys_command_is_claudes_own(desk: Desk) -> None:
    write(
        desk.repo / ".claude" / "commands" / "deploy.md",
        "---\ndescription: d\n---\nDeploy to $ARGUMENTS now. !`echo checked`\n",
    )
    trusting = desk.with_settings(replace_section(desk, project_settings=True))
    desk.model.play(Reply("deployed"))
    assert last(await trusting.run("/deploy staging")).text == "deployed"
    assert "Deploy to staging now. checked" in desk.model.said()
    await trusting.backend.close()


@pytest.mark.parametrize(
    "said",
    ["/config permissionMode=bypassPermissions", "/mcp", "/model opus", "/clear", "/nobody knows", "/"],
)
async def test_what_would_change_claude_itself_is_text_for_the_model(desk: Desk, said: str) -> None:
    desk.model.play(Reply("that is text"))
    assert last(await desk.run(said)).text == "that is text"
    assert len(desk.model.requests) == 1


async def test_a_users_command_cannot_take_the_name_of_one_that_changes_claude(desk: Desk) -> None:
    write(desk.home / ".claude" / "commands" / "config.md", "---\ndescription: d\n---\nMy own config.\n")
    desk.model.play(Reply("that is text"))
    await desk.run("/config permissionMode=bypassPermissions")
    assert "My own config." not in desk.model.said()


async def test_what_only_shows_something_asks_no_model(desk: Desk) -> None:
    assert "Context Usage" in last(await desk.run("/context")).text
    assert desk.model.requests == []


async def test_a_command_may_follow_in_the_same_session(desk: Desk) -> None:
    desk.model.play(Reply("one"))
    first = await desk.run("hello")
    session = last(first)
    assert session.ok
    write(desk.home / ".claude" / "commands" / "greet.md", "Say hello to $ARGUMENTS in Latin.\n")
    desk.model.play(Reply("Salve"))
    started = next(event for event in first if hasattr(event, "session_id"))
    assert last(await desk.run("/greet Ana", session_id=started.session_id)).text == "Salve"
    assert "hello" in desk.model.said()


async def test_compact_sums_the_session_up_and_says_so(desk: Desk) -> None:
    summary = Reply("<summary>They spoke of a quincunx.</summary>")
    desk.model.play(Reply("The word is quincunx."), summary, Reply("Yes."))
    first = await desk.run("tell me a word")
    started = next(event for event in first if hasattr(event, "session_id"))
    told = last(await desk.run("/compact", session_id=started.session_id))
    assert (told.ok, told.text) == (True, COMPACTED)
    again = await desk.run("do you remember?", session_id=started.session_id)
    assert last(again).text == "Yes."
    assert not any(event.fresh for event in again if isinstance(event, Started))
    assert "They spoke of a quincunx." in desk.model.said()
    assert "The word is quincunx." not in desk.model.said()


async def test_where_there_is_nothing_to_compact_it_says_so(desk: Desk) -> None:
    told = last(await desk.run("/compact"))
    assert (told.ok, told.text) == (False, "Error: No messages to compact")
