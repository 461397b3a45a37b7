"""Another model and mode in the middle of a session, at the real Claude Code."""

from __future__ import annotations

import pytest

from codebutler.config.programs import DEFAULT_MODEL
from codebutler_worker.agents.backend import Answer, Approval, Finished, Started, ToolResult
from tests.claude_desk import Desk, bash, last, one, replace_section
from tests.modelserver.server import Reply


async def test_a_session_goes_on_with_another_model_and_mode(desk: Desk) -> None:
    desk.model.play(Reply("one"))
    session = one(await desk.run("remember the word xylophone"), Started).session_id
    section = replace_section(desk, model="claude-haiku-4-5", permission_mode="ask")
    chosen = desk.with_settings(section)
    chosen.backend.share_sessions(desk.backend)
    desk.model.play(Reply("", (bash("touch made"),)), Reply("two"))
    asked = 0
    async for event in chosen.backend.start(chosen.turn("go on", session_id=session)):
        if isinstance(event, Approval):
            asked += 1
            assert await chosen.backend.answer("t1", event.id, Answer(allow=False, text="no"))
        if isinstance(event, ToolResult):
            assert not event.ok
        if isinstance(event, Finished):
            assert event.text == "two"
    assert asked == 1
    assert not (desk.repo / "made").exists()
    assert desk.model.requests[-1]["model"] == "claude-haiku-4-5"
    assert "xylophone" in desk.model.said()
    await chosen.backend.close()


@pytest.mark.parametrize("settings", ["{}", '{"model": "sonnet"}', "malformed"])
async def test_the_usual_model_and_mode_come_back(desk: Desk, settings: str) -> None:
    (desk.home / ".claude").mkdir()
    (desk.home / ".claude" / "settings.json").write_text(settings)
    desk.model.play(Reply("one"))
    session = one(await desk.run("hello"), Started).session_id
    usual = desk.model.requests[-1]["model"]
    for model, used in (("claude-haiku-4-5", "claude-haiku-4-5"), (DEFAULT_MODEL, usual), ("", usual)):
        chosen = desk.with_settings(replace_section(desk, model=model))
        desk.model.play(Reply("two"))
        assert last(await chosen.run("go on", session_id=session)).ok
        assert desk.model.requests[-1]["model"] == used
        await chosen.backend.close()
