"""The chats' sections of the configuration. Each holds everything that other code needs to know about its
chat's configuration, so that no other code tells chats apart.
With the section for repositories that are created from them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta, Struct, field

from codebutler.config.section import Section, Url
from codebutler.domain.refs import NO_CHANNEL, NO_PERSON, ConversationRef, PersonRef

ChatName = str
"""The chat's name for people: Slack."""
PLACE_CHARS = 80
PEOPLE = "allowed_users"
"""The attribute of every chat's section with the people who may speak there."""
CHANNEL_ID = r"^([CGD][A-Z0-9]{2,})?\Z"
ChannelID = Annotated[ConversationRef, Meta(pattern=CHANNEL_ID)]
USER_ID = r"^[UW][A-Z0-9]{2,}\Z"
UserID = Annotated[PersonRef, Meta(pattern=USER_ID)]
# At most 52 significant bits; groups are negative, people are not.
TelegramChat = Annotated[int, Meta(ge=-(2**52), le=2**52)]
TelegramUser = Annotated[int, Meta(ge=1, le=2**52)]
EVERYBODY = "*"
ROOT = r"^(~?/[^\n]*)?\Z"
AUTHOR = r"^([^<>\s-][^<>\n]{0,99} <[^<>\s]{1,100}>)?\Z"


class Token(Struct, frozen=True):
    """A key for a token: its attribute, its name in the file, the token's pattern, and the expected value in
    words."""

    attribute: str
    key: str
    pattern: re.Pattern[str]
    expected: str


class ChatSection(Section, frozen=True):
    """One chat: our account there, the repository's place, and who may speak there.

    ``key`` names the section in the file. ``prefix`` stands before the ids of its places and people, so that no id of
    one chat is one of another. ``place_field`` and ``place_name_field`` are the attributes for the repository's place;
    ``place_sign`` stands before such names where people read them.
    ``person_id`` is a pattern of a person's id, ``person_like`` one of what passes for such an id in a name;
    ``person_words``: how people name somebody to us. ``token_starts``: how its tokens begin, if that distinguishes them
    from all other words; ``token_kinds``: what each beginning means. ``patterns``: what was expected of a value, in
    words.
    """

    title: ClassVar[ChatName]
    key: ClassVar[str]
    prefix: ClassVar[str] = ""
    place_field: ClassVar[str]
    place_name_field: ClassVar[str]
    place_sign: ClassVar[str] = ""
    person_id: ClassVar[str]
    person_like: ClassVar[str]
    person_words: ClassVar[str]
    tokens: ClassVar[tuple[Token, ...]]
    token_starts: ClassVar[tuple[str, ...]] = ()
    token_kinds: ClassVar[Mapping[str, str]] = MappingProxyType({})
    patterns: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @classmethod
    def path(cls, attribute: str) -> tuple[str, str]:
        """The key of an attribute in a file."""
        names = {each.name: each.encode_name for each in msgspec.structs.fields(cls)}
        return cls.key, names[attribute]

    @classmethod
    def people_key(cls) -> str:
        """The key with the people who may speak there, with dots."""
        return ".".join(cls.path(PEOPLE))

    @classmethod
    def person_in(cls, text: str) -> PersonRef:
        """The ID of the person that a text names unambiguously; "" otherwise."""
        return PersonRef(text) if re.fullmatch(cls.person_id, text) else NO_PERSON

    @classmethod
    def file_value(cls, id: ConversationRef | PersonRef) -> Any:  # noqa: A002 - a place's or a person's
        """An ID in the form of a file. Raises ValueError if it is not one of this chat."""
        return id.removeprefix(cls.prefix)

    @classmethod
    def message_url(cls, channel: ConversationRef, ref: str, home: str) -> str:  # noqa: ARG003 - not every chat has such addresses
        """Where people see a message, or with no ``ref`` the channel; "" if that has no address. ``home``: that of the
        whole chat, "" if it is not known."""
        return ""

    @property
    def place(self) -> ConversationRef:
        """The repository's place; "" if not in this chat."""
        value = getattr(self, self.place_field)
        return ConversationRef(f"{self.prefix}{value}") if value else NO_CHANNEL

    @property
    def place_name(self) -> str:
        """The place's name for people."""
        return str(getattr(self, self.place_name_field))

    @property
    def place_shown(self) -> str:
        """The place as people read it: its name on one line, else its ID; "" for none."""
        name = "".join(sign for sign in self.place_name if sign.isprintable()).strip()[:PLACE_CHARS]
        return f"{self.place_sign}{name.removeprefix(self.place_sign)}" if name and self.place else self.place

    @property
    def allowed_ids(self) -> tuple[PersonRef, ...]:
        """Who may speak there. Nobody of another chat."""
        return tuple(PersonRef(f"{self.prefix}{each}") for each in getattr(self, PEOPLE))

    @property
    def has_tokens(self) -> bool:
        """Whether its setup has started."""
        return any(getattr(self, each.attribute) for each in self.tokens)

    @property
    def unheard(self) -> str:
        """Why no message in the repository's place is heard; "" if they are."""
        return ""

    @property
    def for_worker(self) -> Self:
        """The section for a worker: the repository's place, and who may speak there."""
        attributes = (PEOPLE, self.place_field, self.place_name_field)
        return type(self)(**{name: getattr(self, name) for name in attributes})


class SlackSection(ChatSection, frozen=True):
    """The workspace, the repository's channel, and who may speak there."""

    title = "Slack"
    key = "slack"
    place_field = "channel_id"
    place_name_field = "channel_name"
    place_sign = "#"
    person_id = "[UW][A-Z0-9]{2,30}"
    # Not every word in capitals: only long ones, or with a digit.
    person_like = "[UW](?:[A-Z0-9]{8,30}|(?=[A-Z]*[0-9])[A-Z0-9]{4,30})\\b"
    person_words = "a Slack name, e-mail address or user ID"
    # Rotated tokens carry "xoxe." before the type.
    tokens = (
        Token("bot_token", "botToken", re.compile(r"(xoxe\.)?xoxb-\S+"), "a bot token (xoxb-…)"),
        Token("app_token", "appToken", re.compile(r"xapp-\S+"), "an app-level token (xapp-…)"),
    )
    token_starts = ("xox", "xapp")
    token_kinds = MappingProxyType(
        {
            "xoxb-": "a bot token",
            "xapp-": "an app-level token",
            "xoxp-": "a user token",
            "xoxc-": "a browser token",
            "xoxe.xoxp-": "a user token",
        }
    )
    patterns = MappingProxyType(
        {CHANNEL_ID: "a Slack channel ID such as C0123ABCD", USER_ID: "a Slack user ID such as U0123ABCD"}
    )

    bot_token: str = ""
    app_token: str = ""
    api_base_url: Url = "https://slack.com/api/"
    channel_id: ChannelID = field(default=NO_CHANNEL, name="channelID")
    channel_name: str = ""
    allowed_users: tuple[UserID, ...] = ()
    listen_channels: tuple[ChannelID, ...] = ()

    @classmethod
    def message_url(cls, channel: ConversationRef, ref: str, home: str) -> str:
        """Without ``home``, an address that leads into the workspace that the reader is signed in to."""
        place = f"{(home or 'https://slack.com').rstrip('/')}/archives/{channel}"
        return f"{place}/p{ref.replace('.', '')}" if ref else place

    @property
    def unheard(self) -> str:
        """With ``listenChannels`` set, only those are heard."""
        if not self.listen_channels or self.channel_id in self.listen_channels:
            return ""
        return f"messages in {self.channel_id} are ignored: add it to slack.listenChannels (SLACK_LISTEN_CHANNELS)"


class TelegramSection(ChatSection, frozen=True):
    """The bot, the repository's chat (0 = none), and who may speak there, by their numbers."""

    title = "Telegram"
    key = "telegram"
    prefix = "tg:"
    place_field = "chat_id"
    place_name_field = "chat_name"
    person_id = "tg:[0-9]{1,16}"
    person_like = "tg:[0-9]"
    person_words = "somebody's number in Telegram"
    # The bot's number and 35 characters.
    tokens = (
        Token(
            "bot_token",
            "botToken",
            re.compile(r"[0-9]{3,16}:[A-Za-z0-9_-]{20,}"),
            "a bot token (123456:ABC…)",
        ),
    )

    bot_token: str = ""
    api_base_url: Url = "https://api.telegram.org/"
    chat_id: TelegramChat = 0
    chat_name: str = ""
    allowed_users: tuple[TelegramUser, ...] = ()

    @classmethod
    def file_value(cls, id: ConversationRef | PersonRef) -> int:  # noqa: A002 - a place's or a person's
        """The ID in the form of a file. Raises ValueError if it is not a number."""
        return int(id.removeprefix(cls.prefix))

    @classmethod
    def message_url(cls, channel: ConversationRef, ref: str, home: str) -> str:  # noqa: ARG003 - it is the same for all
        """As in ``ChatSection``; only messages of a supergroup have an address."""
        group = re.fullmatch(rf"{cls.prefix}-100([0-9]+)", channel)
        number = re.fullmatch("0*([0-9]{1,16})", ref or "1")
        return f"https://t.me/c/{group[1]}/{number[1]}" if group and number else ""

    @classmethod
    def person_in(cls, text: str) -> PersonRef:
        """A number, or what can be converted to one."""
        found = re.fullmatch(r"(?:tg:)?([1-9][0-9]{0,15})", text.strip())
        return PersonRef(f"{cls.prefix}{found[1]}") if found else NO_PERSON


SECTIONS: tuple[type[ChatSection], ...] = (SlackSection, TelegramSection)
"""All known chats; a new home is set up for the first."""
PERSON = rf"^({'|'.join(each.person_id for each in SECTIONS)})?\Z"


def section_of(id: ConversationRef | PersonRef) -> type[ChatSection]:  # noqa: A002 - a place's or a person's
    """The chat of a place, or of a person."""
    found = (each for each in SECTIONS if each.prefix and id.startswith(each.prefix))
    return next(found, SECTIONS[0])


def chat_of(id: ConversationRef | PersonRef) -> ChatName:  # noqa: A002 - a place's or a person's
    """The same by its name for people."""
    return section_of(id).title


def message_url(channel: ConversationRef, ref: str = "", home: str = "") -> str:
    """Where people see a message, or a channel: see ``ChatSection``."""
    return section_of(channel).message_url(channel, ref, home)


ALLOWED = rf"^({'|'.join(each.person_id for each in SECTIONS)}|[*])\Z"


class NewReposSection(Section, frozen=True):
    """``root``: the directory in which they are created or cloned, "" = off; ``allow``: which users of CodeButler may
    create them, ``*`` = all. A clone may take ``timeout_minutes`` and ``max_mb`` of disk, 0 = any. ``author``: who
    commits in them, ``NAME <ADDRESS>``; "" = the owner's git configuration says."""

    root: Annotated[str, Meta(pattern=ROOT)] = ""
    allow: tuple[Annotated[PersonRef, Meta(pattern=ALLOWED)], ...] = ()
    timeout_minutes: Annotated[float, Meta(gt=0, le=1440)] = 15
    max_mb: Annotated[int, Meta(ge=0, le=2**24)] = 4096
    author: Annotated[str, Meta(pattern=AUTHOR)] = ""
