"""What a message holds: its files, and its text as people write it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codebutler.chat.fields import PayloadError, clean, is_number, section, size, text_in
from codebutler.domain.commands import ALIASES, ALL, WORDS
from codebutler.domain.model import File


def files_of(message: Mapping[str, Any], number: int) -> Iterator[File]:
    """The files of the message of that number; of a photo the largest size."""
    photos = message.get("photo")
    sizes = [each for each in photos if isinstance(each, Mapping)] if isinstance(photos, list) else []
    if sizes:
        largest = max(sizes, key=lambda each: (size(each, "file_size"), size(each, "width")))
        yield _file(largest, f"photo-{number}.jpg", "image/jpeg")
    for kind, ending, mimetype in (
        ("document", "", "application/octet-stream"),
        ("voice", ".ogg", "audio/ogg"),
        ("audio", ".mp3", "audio/mpeg"),
        ("video", ".mp4", "video/mp4"),
        ("video_note", ".mp4", "video/mp4"),
    ):
        if found := section(message, kind):
            yield _file(found, f"{kind}-{number}{ending}", mimetype)


def _file(file: Mapping[str, Any], name: str, mimetype: str) -> File:
    """``url`` stays empty: the address of a file has our token in it."""
    if not (file_id := text_in(file, "file_id")):
        raise PayloadError("a file without an id")
    return File(
        id=file_id,
        name=text_in(file, "file_name") or name,
        mimetype=text_in(file, "mime_type") or mimetype,
        size_bytes=size(file, "file_size"),
    )


def marked(text: str, entities: Sequence[object]) -> str:
    """The text with the code in it as people write it, and the address behind each link. Offsets are UTF-16 units."""
    wide = text.encode("utf-16-le", "surrogatepass")
    changes: list[tuple[int, int, str]] = []
    for entity in entities:
        if not isinstance(entity, Mapping):
            continue
        start, length = entity.get("offset"), entity.get("length")
        if (
            not is_number(start)
            or not is_number(length)
            or start < 0
            or length < 0
            or (start + length) * 2 > len(wide)
        ):
            continue
        inner = wide[start * 2 : (start + length) * 2].decode("utf-16-le", "replace")
        shown = _shown(inner, entity)
        if shown != inner:
            changes.append((start * 2, (start + length) * 2, shown))
    end = len(wide)
    for start, stop, shown in sorted(changes, reverse=True):
        if stop <= end:
            wide = wide[:start] + shown.encode("utf-16-le", "surrogatepass") + wide[stop:]
            end = start
    return clean(wide.decode("utf-16-le", "replace"))


def _shown(inner: str, entity: Mapping[str, Any]) -> str:
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


START = "start"
"""What Telegram has everybody say first; with a code, it answers one that `codebutler setup` shows."""
INBOX = "inbox"
"""What needs somebody, in their private chat."""
MAX_DESCRIPTION = 256

_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@([A-Za-z0-9_]{1,64}))?(?:\s+(.*))?$", re.DOTALL)


def menu() -> list[dict[str, str]]:
    """What Telegram offers when somebody types "/". Bot API: BotCommand."""
    words = [(word.name.replace("-", "_"), _sentence(word.gist)) for word in ALL]
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


def spoken(text: str, username: str) -> str:
    """What was said, a command as the word that it is. A ``/path`` that is none of our words stays as it is."""
    found = _COMMAND.match(text.strip())
    if found is None:
        return text
    name = found[1].lower().replace("_", "-")
    ours = bool(found[2]) and found[2].casefold() == username.casefold()
    if name in WORDS or name in ALIASES or ours:
        return f"!{name} {found[3] or ''}".rstrip()
    return text


def _sentence(gist: str) -> str:
    return f"{gist[0].upper()}{gist[1:]}"
