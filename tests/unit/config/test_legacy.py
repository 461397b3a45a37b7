from __future__ import annotations

import msgspec

from codebutler.cli.migrate import is_legacy, migrate_config
from codebutler.config.schema import Config

SEED = {
    "whatsapp": {"groupJID": "1203@g.us", "groupName": "My Repo", "botPrefix": "[BOT]"},
    "claude": {"maxTurns": 10, "timeout": 30, "permissionMode": "bypassPermissions"},
    "openai": {"apiKey": "sk-secret"},
}


def test_the_sections_with_a_meaning_are_kept() -> None:
    migrated = migrate_config(SEED)

    assert migrated.values == {"claude": SEED["claude"], "openai": SEED["openai"]}
    assert msgspec.convert(migrated.values, Config).claude.max_turns == 10
    assert len(migrated.notes) == 1
    assert "add-repo" in migrated.notes[0]


def test_other_spellings_become_camel_case() -> None:
    migrated = migrate_config(
        {"claude": {"max_turns": 5, "PermissionMode": "plan"}, "openai": {"apikey": "sk-1"}}
    )

    assert migrated.values == {
        "claude": {"maxTurns": 5, "permissionMode": "plan"},
        "openai": {"apiKey": "sk-1"},
    }


def test_what_cannot_come_along_is_named_without_its_value() -> None:
    migrated = migrate_config(
        {"whatsapp": {}, "claude": {"maxTurns": "sk-secret", "color": 1}, "sources": {"x": 1}, "n": 3}
    )

    assert migrated.values == {}
    assert [note.split(":")[0] for note in migrated.notes] == [
        "whatsapp",
        "claude.maxTurns",
        "claude.color",
        "sources",
        "n",
    ]
    assert "sk-secret" not in "".join(migrated.notes)


def test_the_era_is_told_by_its_section() -> None:
    assert is_legacy(SEED)
    assert not is_legacy({"slack": {}})
