from __future__ import annotations

import pytest

from codebutler.chat.slack.answers import ChannelInfo
from codebutler.chat.slack.places import by_name, channel_name
from codebutler.domain.errors import CodeButlerError

GENERAL = ChannelInfo(id="C0GENERAL", name="general")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("#General", "general"),
        ("My Repo.2", "my-repo-2"),
        ("under_score", "under_score"),
        ("Mein schönes Straßenverzeichnis", "mein-schones-strassenverzeichnis"),
        ("---", "repo"),
        ("x" * 100, "x" * 80),
    ],
)
def test_a_channel_name_is_one_slack_allows(text: str, name: str) -> None:
    assert channel_name(text) == name


@pytest.mark.parametrize("wanted", ["general", "#general", "C0GENERAL"])
def test_a_channel_is_found_by_name_or_id(wanted: str) -> None:
    assert by_name([GENERAL], wanted) is GENERAL


def test_an_unknown_channel_is_one_line() -> None:
    with pytest.raises(CodeButlerError, match="cannot see a channel #random"):
        by_name([GENERAL], "#random")
