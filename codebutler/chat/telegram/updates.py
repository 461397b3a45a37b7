"""Parses Telegram's updates. Pure; one of an unknown shape is a PayloadError, never a crash.

Shapes: Bot API, Update. Unknown kinds and fields are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from codebutler.chat.payload import (
    Ignored,
    PayloadError,
    clean,
    is_number,
    mapping,
    mappings,
    number,
    section,
    size,
    text_in,
)
from codebutler.chat.telegram.rules import person_of
from codebutler.domain.commands import ALIASES, ALL, WORDS
from codebutler.domain.model import File
from codebutler.domain.refs import PersonRef

UPDATE_KINDS = ("message", "edited_message", "callback_query", "my_chat_member")
"""The kinds of updates we request; the server remembers them."""
NOT_PEOPLE = (1087968824, 136817688, 777000)
"""An anonymous administrator, a channel, a linked channel: no person."""
GROUPS = ("group", "supergroup")
LEFT_STATUSES = ("left", "kicked")
SPLIT_CHARS = 2048
"""Programs split a text of more than 4,096 characters, at a good place in the second half of each part."""
SPLIT_S = 2.0
START = "start"
"""Telegram makes everybody start with this; with a code, it answers one from `codebutler setup`."""
INBOX = "inbox"
"""What needs somebody, in their private chat."""
MAX_DESCRIPTION = 256
_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@([A-Za-z0-9_]{1,64}))?(?:\s+(.*))?$", re.DOTALL)


class BotIdentity(Struct, frozen=True):
    """Our identity."""

    id: int
    username: str = ""


class MessageLocation(Struct, frozen=True, kw_only=True):
    """The place of a message. ``topic``: of a forum, or of a private chat with topics. ``reply_to``: the
    message it replies to, 0 for none. ``in_general``: in a forum, and in none of its topics."""

    chat: int
    message: int
    is_direct: bool = False
    topic: int = 0
    reply_to: int = 0
    in_general: bool = False


class WrittenUpdate(Struct, frozen=True, kw_only=True):
    """Somebody wrote, or (``edited_at`` is not 0) edited a message. ``album``: the name of the group of files
    it belongs to."""

    spot: MessageLocation
    user: PersonRef
    name: str
    at: float
    text: str
    files: tuple[File, ...] = ()
    mentioned: bool = False
    album: str = ""
    edited_at: float = 0.0


def may_continue(sent: WrittenUpdate) -> bool:
    """Whether what follows may belong to it: the other files of an album, or the rest of a long text."""
    return bool(sent.album) or (len(sent.text) >= SPLIT_CHARS and not sent.files)


def continues(update: WrittenUpdate, sent: Sequence[WrittenUpdate]) -> bool:
    """Whether it belongs to what was sent just before."""
    first, last = sent[0], sent[-1]
    where, there = update.spot, first.spot
    if (update.album, update.user, where.chat) != (first.album, first.user, there.chat):
        return False
    is_rest = not update.files and update.at - last.at <= SPLIT_S
    is_beside = where.topic == there.topic and where.reply_to in (0, there.reply_to)
    return bool(update.album) or (may_continue(last) and is_rest and is_beside)


class ButtonPressed(Struct, frozen=True, kw_only=True):
    """A button was pressed. ``button_rows``: the rows of the message's buttons (label, data); none if Telegram does
    not tell."""

    id: str
    spot: MessageLocation
    user: PersonRef
    name: str
    data: str
    button_rows: tuple[tuple[Mapping[str, Any], ...], ...] = ()


class StartCommand(Struct, frozen=True):
    """Somebody opened the private chat, with a link's code or ("") without one."""

    user: PersonRef
    name: str
    spot: MessageLocation
    at: float
    code: str


class InboxOpened(Struct, frozen=True):
    """Somebody wants to see what needs them."""

    user: PersonRef


class GroupMoved(Struct, frozen=True):
    """A group has become a supergroup, which has another number."""

    old: int
    new: int


class Membership(Struct, frozen=True):
    """We were added to a chat, or removed from it, ``by`` a person (0 = unknown)."""

    chat: int
    is_in: bool
    by: int = 0


Update = WrittenUpdate | ButtonPressed | StartCommand | InboxOpened | GroupMoved | Membership | Ignored


def parse(update: Mapping[str, Any], me: BotIdentity) -> Update:
    """The meaning of an update. Raises PayloadError for a malformed one."""
    if "message" in update:
        return _parse_message(mapping(update, "message"), me)
    if "edited_message" in update:
        return _parse_edit(mapping(update, "edited_message"), me)
    if "callback_query" in update:
        return _parse_press(mapping(update, "callback_query"))
    if "my_chat_member" in update:
        return _parse_membership(mapping(update, "my_chat_member"))
    kinds = sorted(str(name)[:40] for name in update if name != "update_id")
    return Ignored(f"an update of the kind {', '.join(kinds)}")


def _parse_message(message: Mapping[str, Any], me: BotIdentity) -> Update:
    chat = mapping(message, "chat")
    if isinstance(new := message.get("migrate_to_chat_id"), int):
        return GroupMoved(number(chat, "id"), new)
    if isinstance(old := message.get("migrate_from_chat_id"), int):
        return GroupMoved(old, number(chat, "id"))
    if (ignored := _not_a_person(message)) is not None:
        return ignored
    text = text_in(message, "text") or text_in(message, "caption")
    user = mapping(message, "from")
    if chat.get("type") == "private" and (code := start_code(text)) is not None:
        return StartCommand(
            person_of(number(user, "id")), name_in(user), _spot(message), float(number(message, "date")), code
        )
    if is_inbox(text) and not is_for_another(text, me.username):
        return InboxOpened(person_of(number(user, "id")))
    return _parse_written(message, me)


def _parse_edit(message: Mapping[str, Any], me: BotIdentity) -> Update:
    if (ignored := _not_a_person(message)) is not None:
        return ignored
    return _parse_written(message, me, edited_at=float(number(message, "edit_date")))


def _parse_written(
    message: Mapping[str, Any], me: BotIdentity, edited_at: float = 0.0
) -> WrittenUpdate | Ignored:
    spot = _spot(message)
    raw_text = text_in(message, "text") or text_in(message, "caption")
    if is_for_another(raw_text, me.username):
        return Ignored("another bot's command")
    text = to_markdown(raw_text, mappings(message, "entities") or mappings(message, "caption_entities"))
    files = tuple(files_of(message, spot.message))
    if not text.strip() and not files:
        return Ignored("a message without words or files")
    is_mentioned, text = _strip_mention(text, me)
    user = mapping(message, "from")
    return WrittenUpdate(
        spot=spot,
        user=person_of(number(user, "id")),
        name=name_in(user),
        at=float(number(message, "date")),
        text=normalize_command(text, me.username),
        files=files,
        mentioned=is_mentioned or spot.is_direct or _is_reply_to_us(message, me),
        album=text_in(message, "media_group_id"),
        edited_at=edited_at,
    )


def _not_a_person(message: Mapping[str, Any]) -> Ignored | None:
    """Bots never start work, and the author of a message in a chat's name could be anybody."""
    chat = section(message, "chat")
    if chat.get("type") not in ("private", *GROUPS):
        return Ignored(f"a message of a {str(chat.get('type'))[:20]}")
    user = section(message, "from")
    if user.get("is_bot") is True:
        return Ignored("a bot's message")
    if message.get("sender_chat") is not None or user.get("id") in NOT_PEOPLE:
        return Ignored("a message in the name of a chat")
    return None


def _parse_press(query: Mapping[str, Any]) -> ButtonPressed | Ignored:
    message = section(query, "message")
    user = mapping(query, "from")
    if not message or user.get("is_bot") is True:
        return Ignored("a click on a message that is not ours")
    markup = section(message, "reply_markup").get("inline_keyboard")
    return ButtonPressed(
        id=text_in(query, "id"),
        spot=_spot(message),
        user=person_of(number(user, "id")),
        name=name_in(user),
        data=text_in(query, "data"),
        button_rows=tuple(_parse_button_rows(markup)) if isinstance(markup, list) else (),
    )


def _parse_button_rows(rows: Sequence[object]) -> Iterator[tuple[Mapping[str, Any], ...]]:
    for row in rows:
        yield tuple(key for key in row if isinstance(key, Mapping)) if isinstance(row, list) else ()


def _parse_membership(change: Mapping[str, Any]) -> Membership | Ignored:
    chat = mapping(change, "chat")
    if chat.get("type") not in ("private", *GROUPS):
        return Ignored("we are in a channel, or were")
    is_in = section(change, "new_chat_member").get("status") not in LEFT_STATUSES
    by = section(change, "from").get("id")
    return Membership(number(chat, "id"), is_in, by if is_number(by) else 0)


def _spot(message: Mapping[str, Any]) -> MessageLocation:
    """``message_thread_id`` counts only in a topic: elsewhere it names the first message of some replies. In
    a topic, a message that replies to nothing replies to the one that created the topic."""
    chat = mapping(message, "chat")
    replied_to = section(message, "reply_to_message").get("message_id")
    topic = message.get("message_thread_id") if message.get("is_topic_message") is True else 0
    topic = topic if is_number(topic) else 0
    reply_to = replied_to if is_number(replied_to) and replied_to != topic else 0
    return MessageLocation(
        chat=number(chat, "id"),
        message=number(message, "message_id"),
        is_direct=chat.get("type") == "private",
        topic=topic or 0,
        reply_to=reply_to or 0,
        in_general=chat.get("is_forum") is True and not topic,
    )


def _is_reply_to_us(message: Mapping[str, Any], me: BotIdentity) -> bool:
    """Whether it is a reply to us; a reply to the message that created a topic is not."""
    replied_to = section(message, "reply_to_message")
    return "forum_topic_created" not in replied_to and section(replied_to, "from").get("id") == me.id


def _strip_mention(text: str, me: BotIdentity) -> tuple[bool, str]:
    """Whether it mentions us, and the text without a mention at its start."""
    if not me.username:
        return False, text
    name = rf"@{re.escape(me.username)}(?!\w)"
    if found := re.match(rf"\s*{name}[ \t]*[:,]?[ \t]*", text, re.IGNORECASE):
        return True, text[found.end() :]
    return re.search(rf"(?<!\w){name}", text, re.IGNORECASE) is not None, text


def name_in(user: Mapping[str, Any]) -> str:
    """Somebody's name. It decides nothing."""
    return " ".join(f"{text_in(user, 'first_name')} {text_in(user, 'last_name')}".split())[:80]


def files_of(message: Mapping[str, Any], number: int) -> Iterator[File]:
    """The files of the message of that number; of a photo the largest size."""
    if photos := mappings(message, "photo"):
        largest = max(photos, key=lambda each: (size(each, "file_size"), size(each, "width")))
        yield _file(largest, f"photo-{number}.jpg", "image/jpeg")
    for kind, ending, mimetype in (
        ("document", "", "application/octet-stream"),
        ("voice", ".ogg", "audio/ogg"),
        ("audio", ".mp3", "audio/mpeg"),
        ("video", ".mp4", "video/mp4"),
        ("video_note", ".mp4", "video/mp4"),
    ):
        if found := section(message, kind):
            file = _file(found, f"{kind}-{number}{ending}", mimetype)
            yield msgspec.structs.replace(file, is_voice=kind in ("voice", "video_note"))


def _file(file: Mapping[str, Any], name: str, mimetype: str) -> File:
    """``url`` stays empty: a file's address contains our token."""
    if not (file_id := text_in(file, "file_id")):
        raise PayloadError("a file without an id")
    return File(
        id=file_id,
        name=text_in(file, "file_name") or name,
        mimetype=text_in(file, "mime_type") or mimetype,
        size_bytes=size(file, "file_size"),
    )


def to_markdown(text: str, entities: Sequence[Mapping[str, Any]]) -> str:
    """The text with its code as Markdown, and the address of each link. Offsets are UTF-16 units."""
    wide = text.encode("utf-16-le", "surrogatepass")
    changes: list[tuple[int, int, str]] = []
    for entity in entities:
        start, length = size(entity, "offset"), size(entity, "length")
        if not length or (start + length) * 2 > len(wide):
            continue
        inner = wide[start * 2 : (start + length) * 2].decode("utf-16-le", "replace")
        markdown = _entity_markdown(inner, entity)
        if markdown != inner:
            changes.append((start * 2, (start + length) * 2, markdown))
    end = len(wide)
    for start, stop, markdown in sorted(changes, reverse=True):
        if stop <= end:
            wide = wide[:start] + markdown.encode("utf-16-le", "surrogatepass") + wide[stop:]
            end = start
    return clean(wide.decode("utf-16-le", "replace"))


def _entity_markdown(inner: str, entity: Mapping[str, Any]) -> str:
    match entity.get("type"):
        case "code":
            return f"`{inner}`"
        case "pre":
            return f"```{text_in(entity, 'language')}\n{inner}\n```"
        case "text_link":
            url = text_in(entity, "url")
            return (
                inner
                if url.rstrip("/") in (inner, f"https://{inner}", f"http://{inner}")
                else f"{inner} ({url})"
            )
    return inner


def menu() -> list[dict[str, str]]:
    """Telegram's suggestions when somebody types "/". Bot API: BotCommand."""
    words = [(word.name.replace("-", "_"), f"{word.gist[0].upper()}{word.gist[1:]}") for word in ALL]
    words.append((INBOX, "What needs you, in our private chat"))
    return [{"command": name, "description": gist[:MAX_DESCRIPTION]} for name, gist in words]


def is_for_another(text: str, username: str) -> bool:
    """Whether it is another bot's command (``/status@other_bot``)."""
    found = _COMMAND.match(text.strip())
    return found is not None and bool(found[2]) and found[2].casefold() != username.casefold()


def start_code(text: str) -> str | None:
    """The code of ``/start CODE``, "" without one; None for anything else."""
    found = _COMMAND.match(text.strip())
    return (found[3] or "").strip() if found is not None and found[1].lower() == START else None


def is_inbox(text: str) -> bool:
    """Whether somebody asks what needs them."""
    found = _COMMAND.match(text.strip())
    return found is not None and found[1].lower() == INBOX


def normalize_command(text: str, username: str) -> str:
    """The text, with a command in our form. A ``/path`` that is none of our commands stays as it is."""
    found = _COMMAND.match(text.strip())
    if found is None:
        return text
    name = found[1].lower().replace("_", "-")
    ours = bool(found[2]) and found[2].casefold() == username.casefold()
    if name in WORDS or name in ALIASES or ours:
        return f"!{name} {found[3] or ''}".rstrip()
    return text
