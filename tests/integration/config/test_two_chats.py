"""A repository belongs to the chat of its registered channel, whatever any file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codebutler.config.chats import ChatName, ChatSection, SlackSection, TelegramSection
from codebutler.config.paths import Home
from codebutler.config.permission import Person, Where, may
from codebutler.config.registry import Registry, RepoEntry, add
from codebutler.config.resolve import mask_values, resolve_global, resolve_repo, secrets_of
from codebutler.config.trust import digest
from codebutler.domain.errors import ConfigError
from codebutler.domain.refs import ConversationRef
from codebutler.intake.repos import Repos, RepoTable, Served

TOKEN = "123456789:AAsecretsecretsecretsecretsecret123"
GROUP = -1001234567890
BOTH: dict[str, dict[str, Any]] = {
    "slack": {"botToken": "xoxb-1-1", "appToken": "xapp-1-1", "allowedUsers": ["U0ANA"]},
    "telegram": {"botToken": TOKEN, "allowedUsers": [111]},
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").ensure()


def configured(home: Home, values: dict[str, Any]) -> None:
    home.config.write_text(json.dumps(values))
    home.config.chmod(0o600)


def registered(
    home: Home, tmp_path: Path, channel: str, own: dict[str, Any], *, trusted: bool = True
) -> RepoEntry:
    repo = tmp_path / f"repo{len(Registry(home).load())}"
    (repo / ".codebutler").mkdir(parents=True)
    data = json.dumps(own).encode()
    (repo / ".codebutler" / "config.json").write_bytes(data)
    entry = RepoEntry(
        name=repo.name, path=str(repo), channel_id=channel, digest=digest(data) if trusted else ""
    )
    Registry(home).update(lambda entries: add(entries, entry))
    return entry


@pytest.mark.parametrize(
    ("channel", "allowed", "refused"),
    [(f"tg:{GROUP}", "tg:111", "U0ANA"), ("C0SHOP", "U0ANA", "tg:111")],
    ids=["telegram", "slack"],
)
def test_people_of_the_other_chat_are_strangers(
    home: Home, tmp_path: Path, channel: str, allowed: str, refused: str
) -> None:
    configured(home, BOTH)
    both = {"slack": {"channelID": "C0OTHER"}, "telegram": {"chatId": -100999}}
    config = resolve_repo(home, registered(home, tmp_path, channel, both), {}).config
    assert config.channel_id == channel
    place = Where(config, channel)
    assert may(Person(allowed), "see", place).allowed
    decision = may(Person(refused), "see", place)
    assert decision.is_stranger
    assert ("telegram" if channel.startswith("tg:") else "slack") + ".allowedUsers" in decision.message


def test_what_is_told_a_stranger_is_what_the_owner_writes_down(home: Home, tmp_path: Path) -> None:
    configured(home, BOTH)
    config = resolve_repo(home, registered(home, tmp_path, f"tg:{GROUP}", {}), {}).config
    told = may(Person("tg:222"), "see", Where(config, config.channel_id)).message
    assert "user ID `222` to `telegram.allowedUsers`" in told


def test_each_value_says_where_it_is_from(home: Home, tmp_path: Path) -> None:
    configured(home, BOTH)
    own = {"telegram": {"chatId": GROUP, "chatName": "Shop", "allowedUsers": [111, 222]}}
    entry = registered(home, tmp_path, f"tg:{GROUP}", own)
    resolved = resolve_repo(home, entry, {"TELEGRAM_API_URL": "http://127.0.0.1:1/"})
    sources = resolved.provenance
    assert sources["telegram.chatId"] == f"{entry.path}/.codebutler/config.json"
    assert sources["telegram.botToken"] == str(home.config)
    assert sources["telegram.apiBaseUrl"] == "environment TELEGRAM_API_URL"
    assert sources["slack.channelID"] == "default"
    assert resolved.config.channel_name == resolved.config.chat.place_shown == "Shop"
    assert resolved.config.chat.allowed_ids == ("tg:111", "tg:222")


@pytest.mark.parametrize(
    ("section", "shown"),
    [
        (SlackSection(channel_id="C0SHOP", channel_name="shop"), "#shop"),
        (SlackSection(channel_id="C0SHOP", channel_name="#shop"), "#shop"),
        (SlackSection(channel_id="C0SHOP"), "C0SHOP"),
        (SlackSection(channel_name="shop"), ""),
        (TelegramSection(chat_id=GROUP, chat_name="Shop\n\u202e \x1b[2J"), "Shop [2J"),
        (TelegramSection(chat_id=GROUP, chat_name="\u200b"), f"tg:{GROUP}"),
        (TelegramSection(chat_id=GROUP), f"tg:{GROUP}"),
    ],
)
def test_a_place_is_shown_by_its_name(section: ChatSection, shown: str) -> None:
    assert section.place_shown == shown


def test_an_untrusted_file_moves_it_nowhere_and_lets_nobody_in(home: Home, tmp_path: Path) -> None:
    configured(home, BOTH)
    claimed = {"telegram": {"chatId": -100666, "allowedUsers": [111, 666], "botToken": TOKEN[::-1]}}
    entry = registered(home, tmp_path, f"tg:{GROUP}", claimed | {}, trusted=False)
    with pytest.raises(ConfigError, match=r"telegram\.botToken"):
        resolve_repo(home, entry, {})
    (Path(entry.path) / ".codebutler" / "config.json").write_text(
        json.dumps(
            {"telegram": {**claimed["telegram"], "botToken": "987654321:AAstolenstolenstolenstolen12"}}
        )
    )
    resolved = resolve_repo(home, entry, {})
    assert resolved.config.channel_id == f"tg:{GROUP}"
    assert resolved.config.chat.allowed_ids == ("tg:111",)
    assert resolved.config.telegram.bot_token == TOKEN
    assert any("telegram.botToken" in note for note in resolved.notes)
    slack = registered(home, tmp_path, "C0SHOP", claimed | {"telegram": {"chatId": -100666}}, trusted=False)
    assert resolve_repo(home, slack, {}).config.channel_id == "C0SHOP"


def test_the_token_is_a_secret_and_goes_to_no_worker(home: Home, tmp_path: Path) -> None:
    configured(home, BOTH)
    registered(home, tmp_path, f"tg:{GROUP}", {})
    resolved = resolve_global(home, {})
    assert TOKEN in secrets_of(resolved.config)
    assert TOKEN not in json.dumps(mask_values(resolved.values))
    (served,) = RepoTable.read(home, {}).served
    settings = served.settings({"TELEGRAM_BOT_TOKEN": TOKEN})
    assert TOKEN not in repr(settings)
    assert (settings.channel_id, settings.config.chat.allowed_ids) == (f"tg:{GROUP}", ("tg:111",))


@pytest.mark.parametrize(
    ("values", "missing", "chat"),
    [
        ({"telegram": BOTH["telegram"]}, "C0SHOP", "Slack"),
        ({"slack": BOTH["slack"]}, f"tg:{GROUP}", "Telegram"),
    ],
    ids=["no Slack", "no Telegram"],
)
def test_a_repository_of_a_chat_without_a_token_is_not_served_and_says_so(
    home: Home, tmp_path: Path, values: dict[str, Any], missing: str, chat: str
) -> None:
    configured(home, values)
    served = {"C0SHOP", f"tg:{GROUP}"} - {missing}
    for channel in ("C0SHOP", f"tg:{GROUP}"):
        registered(home, tmp_path, channel, {})
    table = RepoTable.read(home, {})
    assert set(table.by_channel()) == served
    assert f"no token for {chat}: run `codebutler setup`" in table.unserved[0].problem


def test_one_of_a_chat_that_came_after_the_start_waits_for_the_next(home: Home, tmp_path: Path) -> None:
    configured(home, BOTH)
    for channel in ("C0SHOP", f"tg:{GROUP}"):
        registered(home, tmp_path, channel, {})
    table = RepoTable.read(home, {}).of_chats(frozenset[ChatName]({"Slack"}))
    assert list(table.by_channel()) == ["C0SHOP"]
    assert "restart the supervisor" in table.unserved[0].problem


def test_each_chat_listens_to_its_own_channels(home: Home, tmp_path: Path) -> None:
    configured(home, BOTH)
    for channel in ("C0SHOP", f"tg:{GROUP}"):
        registered(home, tmp_path, channel, {})
    repos = Repos(RepoTable.read(home, {}), lambda: (ConversationRef("D0ANA"), ConversationRef("tg:111")))
    assert set(repos.listened("Slack")) == {"C0SHOP", "D0ANA"}
    assert set(repos.listened("Telegram")) == {f"tg:{GROUP}", "tg:111"}


def test_slacks_list_of_channels_is_no_word_about_telegram(home: Home, tmp_path: Path) -> None:
    configured(home, {**BOTH, "slack": {**BOTH["slack"], "listenChannels": ["C0SHOP"]}})
    registered(home, tmp_path, f"tg:{GROUP}", {})
    served: tuple[Served, ...] = RepoTable.read(home, {}).served
    assert [each.unheard for each in served] == [""]


def test_a_registered_chat_that_is_none_is_refused(home: Home, tmp_path: Path) -> None:
    configured(home, BOTH)
    registered(home, tmp_path, "tg:shop", {})
    assert "is not a Telegram chat" in RepoTable.read(home, {}).unserved[0].problem


@pytest.mark.parametrize(
    ("telegram", "what"),
    [
        ({"botToken": "xoxb-1"}, r"telegram\.botToken: expected a bot token"),
        ({"allowedUsers": ["ana"]}, "telegram.allowedUsers"),
        ({"allowedUsers": [-5]}, "telegram.allowedUsers"),
        ({"chatId": "@shop"}, "telegram.chatId"),
    ],
)
def test_what_telegram_never_gives_out_is_refused(home: Home, telegram: dict[str, Any], what: str) -> None:
    configured(home, {"telegram": telegram})
    with pytest.raises(ConfigError, match=what):
        resolve_global(home, {})


def test_the_environment_says_the_same(home: Home) -> None:
    env = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_ALLOWED_USER_IDS": "111, 222"}
    telegram = resolve_global(home, env).config.telegram
    assert (telegram.bot_token, telegram.allowed_users) == (TOKEN, (111, 222))
    with pytest.raises(ConfigError, match="TELEGRAM_ALLOWED_USER_IDS"):
        resolve_global(home, {"TELEGRAM_ALLOWED_USER_IDS": "ana"})
