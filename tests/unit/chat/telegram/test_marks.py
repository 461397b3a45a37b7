"""Our marks are reactions that Telegram allows."""

from __future__ import annotations

from typing import get_args

from codebutler.chat.telegram.rules import REACTIONS
from codebutler.chat.telegram.updates import menu
from codebutler.domain.commands import ALL
from codebutler.domain.model import Mark
from tests.telegram.methods import REACTIONS as UPDATE_KINDS


def test_every_mark_has_a_reaction_of_its_own_that_is_allowed() -> None:
    assert set(REACTIONS) == set(get_args(Mark))
    assert len(set(REACTIONS.values())) == len(REACTIONS)
    assert set(REACTIONS.values()) <= UPDATE_KINDS
    assert len(UPDATE_KINDS) == 73


def test_every_word_is_a_command() -> None:
    assert [each["command"] for each in menu()] == [*(word.name.replace("-", "_") for word in ALL), "inbox"]
