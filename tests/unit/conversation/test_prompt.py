"""What the agent is told."""

from __future__ import annotations

from codebutler.text.envelope import Envelope, parts_of
from codebutler_worker.conversation.prepare import (
    PromptMessage,
    attached,
    system_prompt,
    user_prompt,
    with_files,
)
from codebutler_worker.store.rows import AttachmentRow


def test_the_restrictions_come_first_then_the_place_then_the_memory() -> None:
    prompt = system_prompt("/home/u/repo", "- Login uses bcrypt\n")
    assert prompt.startswith("RULES OF THIS REPOSITORY")
    assert prompt.index("/home/u/repo") < prompt.index("Login uses bcrypt")


def test_every_restriction_is_there() -> None:
    prompt = system_prompt("/r", "")
    for words in (
        "Install nothing",
        "Stay inside the working directory",
        "Change nothing of the system",
        "environment variables",
        "no network requests",
        "no recursive deletions, no force pushes, no dropping",
        "what would be needed, and stop",
    ):
        assert words in prompt


def test_without_memory_nothing_is_said_of_it() -> None:
    assert "Remembered" not in system_prompt("/r", "  \n")


def test_messages_are_joined_in_order_and_late_ones_marked() -> None:
    assert (
        user_prompt([PromptMessage("one"), PromptMessage("two", late=True)])
        == "one\n\n[written while you were offline] two"
    )


def test_a_continued_turn_reports_first_and_is_not_told_again_what_it_knows() -> None:
    prompt = user_prompt([PromptMessage("old", known=True), PromptMessage("new")], "interrupted")
    assert "report that first" in prompt
    assert "old" not in prompt
    assert prompt.endswith("\n\nnew")
    assert "limit" in user_prompt([PromptMessage("old", known=True)], "limit")


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
    answered = [("Which colour?", "Blue"), ("How big?", "as big as\na house")]
    prompt = user_prompt([PromptMessage("paint it", known=True)], "interrupted", answered)
    assert "Which colour? -> Blue\nHow big? -> as big as\na house" in prompt
    assert user_prompt([PromptMessage("paint it")], "", answered) == "paint it"
