"""What the agent is told."""

from __future__ import annotations

from pathlib import Path

from codebutler.text.envelopes import Envelope, parts_of
from codebutler_worker.conversation.history import Missed
from codebutler_worker.conversation.prepare import (
    BegunTurn,
    PromptMessage,
    attached,
    prompt_of,
    system_prompt,
    with_files,
)
from codebutler_worker.store.rows import AttachmentRow, TurnRow


def prompt(
    *said: PromptMessage, reason: str | None = None, answered: tuple[tuple[str, str], ...] = ()
) -> str:
    turn = TurnRow(
        id="turn",
        conversation="C:1",
        channel_id="C",
        thread="1",
        agent="claude",
        created_at="",
        reason=reason,
        session_id="s",
    )
    begun = BegunTurn(turn, said, (), None, 0.0, "", None, Missed(), answered=answered)
    return prompt_of(begun, (), Path("/r"))


def test_the_restrictions_come_first_then_the_place_then_the_memory() -> None:
    told = system_prompt("/home/u/repo", "- Login uses bcrypt\n")
    assert told.startswith("RULES OF THIS REPOSITORY")
    assert told.index("/home/u/repo") < told.index("Login uses bcrypt")


def test_every_restriction_is_there() -> None:
    told = system_prompt("/r", "")
    for words in (
        "Install nothing",
        "Stay inside the working directory",
        "Change nothing of the system",
        "environment variables",
        "no network requests",
        "no recursive deletions, no force pushes, no dropping",
        "what would be needed, and stop",
    ):
        assert words in told


def test_without_memory_nothing_is_said_of_it() -> None:
    assert "Remembered" not in system_prompt("/r", "  \n")


def test_messages_are_joined_in_order_and_late_ones_marked() -> None:
    assert (
        prompt(PromptMessage("one"), PromptMessage("two", late=True))
        == "one\n\n[written while you were offline] two"
    )


def test_a_continued_turn_reports_first_and_is_not_told_again_what_it_knows() -> None:
    told = prompt(PromptMessage("old", known=True), PromptMessage("new"), reason="interrupted")
    assert "report that first" in told
    assert "old" not in told
    assert told.endswith("\n\nnew")
    assert "limit" in prompt(PromptMessage("old", known=True), reason="limit")


def test_each_message_says_what_came_of_its_files() -> None:
    def file(**fields: object) -> AttachmentRow:
        return AttachmentRow(message_id="C1:1.0", file_id="F1", name="a b.png", **fields)  # type: ignore[arg-type]

    stored = file(
        state="stored", path=".codebutler/files/F1-a_b.png", mimetype="image/png", size_bytes=12_345
    )
    spoken = file(state="transcribed", transcript="run the tests")
    lost = file(state="failed")
    first, second = attached(
        [PromptMessage("look", id="C1:1.0"), PromptMessage("and then", id="C1:2.0")],
        [stored, spoken, lost],
        "/srv/shop",
    )
    assert first.text == (
        "look\n\n[attached file: /srv/shop/.codebutler/files/F1-a_b.png (image/png, 12 kB)]\n"
        "[voice message, transcribed] run the tests\n"
        "[attached file a b.png: it could not be fetched]"
    )
    assert second.text == "and then"


def test_a_message_of_files_alone_is_their_notes() -> None:
    assert with_files("  ", ["[a]", "[b]"]) == "[a]\n[b]"


def test_the_agent_is_told_how_to_send_a_file_and_to_ask_for_a_push_as_it_is_understood() -> None:
    told = parts_of(system_prompt("/r", ""))
    assert [part for part in told if isinstance(part, Envelope)] == [
        Envelope("file", "path/of/the/file"),
        Envelope("push", "why"),
    ]


def test_what_was_answered_before_the_end_is_told_where_it_goes_on() -> None:
    answered = (("Which colour?", "Blue"), ("How big?", "as big as\na house"))
    told = prompt(PromptMessage("paint it", known=True), reason="interrupted", answered=answered)
    assert "Which colour? -> Blue\nHow big? -> as big as\na house" in told
    assert prompt(PromptMessage("paint it"), answered=answered) == "paint it"
