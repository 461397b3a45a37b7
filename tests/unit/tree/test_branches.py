"""How branches are called."""

from __future__ import annotations

import pytest

from codebutler_worker.tree.worktrees import SLUG_CHARS, names_of, slug


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("Please fix the login bug", "fix-login-bug"),
        ("Can you do it?", "can-you-do-it"),
        ("Don't crash when Zoë's cart is empty!", "dont-crash-when-zoes-cart-empty"),
        ("../../etc; rm -rf ~ @{-1} .lock", "etc-rm-rf-1-lock"),
        ("почини вход", "task"),
        ("", "task"),
        ("x" * 400, "x" * SLUG_CHARS),
        ("refactor " + "y" * 400, "refactor"),
    ],
)
def test_a_name_is_of_the_words_that_say_something(task: str, name: str) -> None:
    assert slug(task) == name


def test_conversations_with_the_same_task_have_different_branches() -> None:
    one, two = names_of("C1:100.1", "fix it"), names_of("C1:200.1", "fix it")
    assert not set(one) & set(two)
    assert one == names_of("C1:100.1", "fix it")
    assert [len(name) for name in one] == [len("codebutler/fix-") + digits for digits in (4, 8, 16)]
