"""What is said in direct messages about which repository is meant, and about all of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from codebutler.actions import REPO_ACTION
from codebutler.apphome.view import NEEDS, SIGNS, RepoCard, done_line, need_line, repo_line
from codebutler.intake.intake import Repo
from codebutler.model import Post, Update
from codebutler.text.escape import escape
from codebutler.words import SLASH, nearest

BARE = frozenset({"help", "status", "list"})
"""Words that alone are a wish here, without a mark before them."""
MAX_BUTTONS = 20
MAX_LISTED = 15
LABEL_CHARS = 75
_NAMED = re.compile(r"\s*([\w.-]{1,100})\s*:\s*(.*)", re.DOTALL)
_BARE = re.compile(r"\s*(\w+)\s*[?!.]?\s*")


def worded(text: str) -> str:
    """The text, with the mark before one of the words that need none here."""
    match = _BARE.fullmatch(text)
    return f"!{match[1].lower()}" if match and match[1].lower() in BARE else text


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
    example = escape(names[0])
    text = f"Which repository is it about? Next time you can say it at once: `{example}: …`"
    more = len(names) - MAX_BUTTONS
    if more > 0:
        text += f" (and {more} more, by name)"
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    return Post(text=text, thread_ts=thread_ts, blocks=(section, *map(_row, names[:MAX_BUTTONS])))


def chosen(card_ts: str, name: str) -> Update:
    """The question, once it is answered."""
    return Update(target_ts=card_ts, text=f"*{escape(name)}* it is. Everything in this thread goes there.")


def help_text(repos: Mapping[str, Repo]) -> str:
    """How to talk to us here."""
    names = sorted(repo.name for repo in repos.values())
    if len(names) == 1:
        where = f"Write anything: *{escape(names[0])}*'s agent works on it. Reply in the thread to go on."
    else:
        listed = ", ".join(f"*{escape(name)}*" for name in names[:MAX_LISTED])
        where = (
            f"Write anything, and I ask which repository it is about: {listed}. "
            f"`{escape(names[0])}: …` says it at once. Reply in the thread to go on."
        )
    return "\n".join(
        [
            where,
            "`status`  how every repository is",
            "`list`  the latest conversations of all of them",
            "In a thread all the other words work as in its channel: `!help` there lists them.",
            "_Others who may use a repository see its conversations in `!list`, also those begun here._",
        ]
    )


def down(name: str) -> str:
    """For a repository whose worker does not come up."""
    return (
        f"⚠️ *{escape(name)}* cannot answer now: its worker keeps failing, and `codebutler logs` on its machine says "
        "why. What you write is kept and answered later."
    )


def unknown(name: str) -> str:
    """For a word that no repository knows."""
    near = nearest(name)
    hint = f" Did you mean `!{near}`?" if near else " `help` says what can be said here."
    return f"I do not know `!{escape(name[:40])}`.{hint}"


def no_slash() -> str:
    """For a slash command that concerns one repository."""
    return (
        f"Here `{SLASH}` knows `help`, `status` and `list`. For one repository write `!word` as a message, "
        f"or `{SLASH} word` in its channel."
    )


def status_text(cards: Sequence[RepoCard]) -> str:
    """Every repository in a line."""
    lines = []
    for card in cards:
        trouble = f" · 🔴 {escape(card.trouble)}" if card.trouble else ""
        lines.append(repo_line(card) + trouble)
    return "\n".join(lines) or "No repository is served."


def list_text(cards: Sequence[RepoCard], now: datetime) -> str:
    """The latest conversations of all repositories, those that need somebody first."""
    pairs = [(card, turn) for card in cards for turn in card.turns]
    latest = sorted(pairs, key=lambda pair: pair[1].at, reverse=True)
    needs = [need_line(card, turn, now) for card, turn in latest if turn.state in NEEDS]
    rest = [done_line(card, turn, now) for card, turn in latest if turn.state in SIGNS]
    lines = [*needs, *rest]
    left = len(lines) - MAX_LISTED
    return "\n".join([*lines[:MAX_LISTED], *([f"… and {left} more"] if left > 0 else [])]) or "Nothing yet."


def _row(name: str) -> dict[str, Any]:
    """Slack: an ``action_id`` is there once in a block, so each button has a block of its own."""
    label = {"type": "plain_text", "text": name[:LABEL_CHARS]}
    button = {"type": "button", "text": label, "action_id": REPO_ACTION, "value": name}
    return {"type": "actions", "elements": [button]}
