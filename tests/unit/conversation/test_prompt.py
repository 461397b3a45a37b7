"""What the agent is told."""

from __future__ import annotations

from codebutler_worker.conversation.prompt import Said, system_prompt, user_prompt, with_files


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
    assert user_prompt([Said("one"), Said("two", late=True)]) == "one\n\n[written while you were offline] two"


def test_a_continued_turn_reports_first_and_is_not_told_again_what_it_knows() -> None:
    prompt = user_prompt([Said("old", known=True), Said("new")], "interrupted")
    assert "report that first" in prompt
    assert "old" not in prompt
    assert prompt.endswith("\n\nnew")
    assert "limit" in user_prompt([Said("old", known=True)], "limit")


def test_files_are_named() -> None:
    assert with_files("look", ["a.png", "b.txt"]) == "look\n[attached, not downloaded: a.png, b.txt]"
    assert with_files("", ["a.png"]) == "[attached, not downloaded: a.png]"
    assert with_files("look", []) == "look"
