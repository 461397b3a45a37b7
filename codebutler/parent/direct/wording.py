"""What is said in direct messages about which repository is meant, and about all of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from codebutler.domain.commands import DIRECT, SLASH, nearest
from codebutler.domain.message import REPO_ACTION, Button, said
from codebutler.domain.model import Post, Update
from codebutler.intake.intake import Repo
from codebutler.text.markup import code, plain

MAX_BUTTONS = 20
_NAMED = re.compile(r"\s*([\w.-]{1,100})\s*:\s*(.*)", re.DOTALL)
_BARE = re.compile(r"\s*(\w+)\s*[?!.]?\s*")


def worded(text: str) -> str:
    """The text, with the mark before one of the words that need none here."""
    match = _BARE.fullmatch(text)
    return f"!{match[1].lower()}" if match and match[1].lower() in DIRECT else text


def named(text: str, repos: Iterable[Repo]) -> tuple[Repo, str] | None:
    """The repository that ``name: text`` is for, and its text; None where no repository is named.

    A word that names an agent in it (``claude: …``) stays that.
    """
    match = _NAMED.fullmatch(text)
    if match is None:
        return None
    name = match[1].lower()
    found = [repo for repo in repos if repo.name.lower() == name and name not in repo.prefixes]
    return (found[0], match[2]) if len(found) == 1 else None


def called(text: str, repos: Iterable[Repo]) -> Repo | None:
    """The repository whose name is all that the text says."""
    return next((repo for repo in repos if repo.name.lower() == text.strip().lower()), None)


def question(names: Sequence[str], thread_ts: str) -> Post:
    """Which repository is meant: a button for each, and how to say it at once."""
    example = code(f"{names[0]}: …")
    text = f"Which repository is it about? Next time you can say it at once: {example}"
    more = len(names) - MAX_BUTTONS
    if more > 0:
        text += f" (and {more} more, by name)"
    buttons = (Button(name, REPO_ACTION, name) for name in names[:MAX_BUTTONS])
    return Post(message=said(text, *buttons), thread_ts=thread_ts)


def chosen(card_ts: str, name: str) -> Update:
    """The question, once it is answered."""
    return Update(
        target_ts=card_ts, message=said(f"**{plain(name)}** it is. Everything in this thread goes there.")
    )


def down(name: str) -> str:
    """For a repository whose worker does not come up."""
    return (
        f"⚠️ **{plain(name)}** cannot answer now: its worker keeps failing, and `codebutler logs` on its machine says "
        "why. What you write is kept and answered later."
    )


def unknown(name: str) -> str:
    """For a word that no repository knows."""
    near = nearest(name)
    hint = f" Did you mean `!{near}`?" if near else " `help` says what can be said here."
    return f"I do not know {code(f'!{name[:40]}')}.{hint}"


def no_slash() -> str:
    """For a slash command that concerns one repository."""
    return (
        f"Here `{SLASH}` knows {', '.join(f'`{name}`' for name in DIRECT)}. For one repository write `!word` as a "
        f"message, or `{SLASH} word` in its channel."
    )
