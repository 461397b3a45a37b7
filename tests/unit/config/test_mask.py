from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.load import leaves
from codebutler.config.resolve import MASK, is_secret, mask_text, mask_values
from codebutler.config.schema import Config


def test_every_key_that_holds_a_secret_is_known() -> None:
    names = {path[-1] for path, _ in leaves(msgspec.to_builtins(Config()))}

    assert {name for name in names if name.endswith(("Token", "Key", "token"))} == {
        name for name in names if is_secret(name)
    }


@given(st.text(min_size=1))
def test_no_character_of_a_secret_is_shown(secret: str) -> None:
    assert mask_values({"slack": {"botToken": secret}, "kimi": {"apiKey": secret}}) == {
        "slack": {"botToken": MASK},
        "kimi": {"apiKey": MASK},
    }


def test_an_unset_secret_is_shown_as_unset() -> None:
    assert mask_values({"slack": {"botToken": ""}}) == {"slack": {"botToken": ""}}


def test_secrets_in_other_values_are_masked_too() -> None:
    shown = mask_values(
        {
            "kimi": {"baseUrl": "https://user:hunter2@proxy.example/v1"},
            "claude": {"extraArgs": ["--api-key", "hunter2", "--token=hunter2", "--verbose", "fine"]},
            "commands": [{"prefix": "x", "args": ["xoxb-12345678-hunter2"]}],
        }
    )

    assert "hunter2" not in msgspec.json.encode(shown).decode()
    assert shown["claude"]["extraArgs"][3:] == ["--verbose", "fine"]
    assert shown["kimi"]["baseUrl"] == f"https://{MASK}@proxy.example/v1"


def test_plain_text_is_left_alone() -> None:
    assert (
        mask_text("https://slack.com/api/ risk-analysis xapp") == "https://slack.com/api/ risk-analysis xapp"
    )
