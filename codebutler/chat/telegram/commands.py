"""Our words as Telegram's commands: ``/status`` in a chat is ``!status``. Pure."""

from __future__ import annotations

import re

from codebutler.domain.commands import ALIASES, ALL, WORDS

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
