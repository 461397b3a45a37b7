"""The card of a race."""

from __future__ import annotations

from codebutler_worker.changes.card import CheckResult
from codebutler_worker.changes.race import ANSWER_CHARS, Checked, Contender, Work, compared
from codebutler_worker.store.rows import TurnRow, TurnState
from codebutler_worker.tree.tree import Difference, FileChange

FOUND = Difference(
    "a", "b", tuple(FileChange(f"src/{number}.py", 2, 1) for number in range(6)), ("1234 Fix",), ""
)


def entry(
    agent: str,
    state: TurnState = "done",
    result: str = "Done.",
    found: Difference | None = FOUND,
    checked: Checked | None = None,
    started: bool = True,
    is_known: bool = True,
) -> Contender:
    at = "2026-01-01T00:00:0{}+00:00"
    run = TurnRow(
        id=f"run-{agent}",
        conversation=f"C:1~race-k-{agent}",
        channel_id="C",
        thread="1",
        agent=agent,
        created_at=at.format(0),
        state=state,
        started_at=at.format(1) if started else None,
        finished_at=at.format(9),
        result=result,
        cost_usd=0.5,
    )
    return Contender(run, Work(found, is_known=is_known), checked or Checked())


def shown(*entries: Contender) -> tuple[str, list[tuple[str, str]]]:
    card = compared("shop", entries, lambda text: text.replace("secret", "***"))
    return card.markdown, [(button.label, button.value) for button in card.buttons]


def test_each_has_its_figures_and_its_buttons() -> None:
    failed = Checked(
        (CheckResult("tests", ok=False, seconds=3, exit_code=1, tail="long output", log="ab12"),)
    )
    text, buttons = shown(entry("claude"), entry("native", checked=failed, found=None))
    assert "**1. `claude`** · ✅ done in 8s · $0.50" in text
    assert "**6 files changed** · +12 −6 · 1 commit" in text
    assert text.count("`src/") == 4
    assert "… and 2 more files" in text
    assert "**2. `agent`**" in text
    assert "It changed no files." in text
    assert "❌ `tests` failed (exit code 1) after 3s · `!logs ab12`" in text
    assert "long output" not in text
    assert buttons == [
        ("Diff claude", "run-claude"),
        ("Pick claude", "run-claude"),
        ("Pick agent", "run-native"),
        ("Discard both", "run-claude"),
    ]


def test_one_that_failed_says_why_and_its_changes_can_be_picked_all_the_same() -> None:
    text, buttons = shown(entry("claude", "failed", "No *key*."), entry("kimi", "failed", "No secret.", None))
    assert "❌ failed after 8s" in text
    assert "> No *key*." not in text  # Markdown of its own would be shown as ours.
    assert "key" in text
    assert "secret" not in text
    assert [label for label, _ in buttons] == ["Diff claude", "Pick claude", "Discard both"]
    assert "Only one of them changed anything." in text


def test_where_nobody_has_anything_there_is_nothing_to_press() -> None:
    late = entry("kimi", "stopped", "The budget is used up.", None, started=False)
    text, buttons = shown(entry("claude", "stopped", "", None), late)
    assert "🛑 stopped after 8s" in text
    assert "⏹️ did not start" in text
    assert "> The budget is used up." in text
    assert buttons == []


def test_what_is_not_known_is_not_called_nothing() -> None:
    text, buttons = shown(entry("claude", "failed", "", None, is_known=False), entry("kimi", found=None))
    assert text.count("It changed no files.") == 1
    assert "Its changes are unknown" in text
    assert [label for label, _ in buttons] == ["Pick claude", "Pick kimi", "Discard both"]


def test_an_answer_is_cut_and_loses_its_secrets_first() -> None:
    text, _ = shown(entry("claude", result=f"secret {'x' * ANSWER_CHARS}"), entry("kimi"))
    assert "secret" not in text
    assert f"{'x' * 400}" in text
    assert "x" * ANSWER_CHARS not in text
