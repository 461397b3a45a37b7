"""App Home as blocks. Pure. Slack: views.publish, at most 100 blocks, 3,000 characters in a section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from codebutler.model import TurnNote
from codebutler.text.escape import escape
from codebutler.text.links import message_link

MAX_NEEDS = 20
MAX_RECENT = 10
MAX_REPOS = 40
NEEDS = {
    "waiting": "🔐 waits for an answer",
    "interrupted": "⏸ was interrupted",
    "parked": "⏳ waits for its limit",
}
SIGNS = {"running": "👀", "queued": "⏳", "done": "✅", "failed": "❌", "stopped": "🛑"}
HEALTH = {
    "running": "🟢",
    "sleeping": "💤",
    "starting": "🟡",
    "backoff": "🟠",
    "quarantined": "🔴",
    "stopped": "⚪",
}


@dataclass(frozen=True, slots=True)
class RepoCard:
    """A repository as somebody who may use it sees it. ``trouble``: what is out of order, "" if nothing is;
    ``budget``: how much of today's is used, "" without one."""

    name: str
    channel: str
    worker: str
    turns: tuple[TurnNote, ...] = ()
    trouble: str = ""
    budget: str = ""


def stranger() -> list[dict[str, Any]]:
    """For somebody who may use nothing here."""
    what_to_do = "Its owner can add your user ID to `slack.allowedUsers`."
    return [_section(f"You are not authorized to use CodeButler here. {what_to_do}")]


def home(cards: Sequence[RepoCard], slack_trouble: str, now: datetime) -> list[dict[str, Any]]:
    """What needs somebody first, then what is out of order, what was done, and every repository."""
    needs = [(card, turn) for card in cards for turn in card.turns if turn.state in NEEDS]
    recent = sorted(
        ((card, turn) for card in cards for turn in card.turns if turn.state in SIGNS),
        key=lambda pair: pair[1].at,
        reverse=True,
    )
    troubles = [f"🔴 {escape(slack_trouble)}"] if slack_trouble else []
    troubles += [f"🔴 *{escape(card.name)}*: {escape(card.trouble)}" for card in cards if card.trouble]
    return [
        _header("What needs you"),
        *_lines(
            [_need(card, turn, now) for card, turn in needs],
            MAX_NEEDS,
            "Nothing. Everything is taken care of.",
        ),
        *([_header("Out of order"), *_lines(troubles, MAX_REPOS, "")] if troubles else []),
        _header("Recent work"),
        *_lines(
            [_done(card, turn, now) for card, turn in recent], MAX_RECENT, "Nothing yet: write in a channel."
        ),
        _header("Repositories"),
        *_lines(
            [_repo(card) for card in cards], MAX_REPOS, "None is served: `codebutler add-repo PATH` adds one."
        ),
    ]


def _need(card: RepoCard, turn: TurnNote, now: datetime) -> str:
    return f"{NEEDS[turn.state]}: {_link(card, turn)} · {_where(card)} · {_age(turn, now)}"


def _done(card: RepoCard, turn: TurnNote, now: datetime) -> str:
    cost = f" · ${turn.cost_usd:.2f}" if turn.cost_usd is not None else ""
    return f"{SIGNS[turn.state]} {_link(card, turn)} · {_where(card)} · {escape(turn.agent)}{cost} · {_age(turn, now)}"


def _repo(card: RepoCard) -> str:
    budget = f" · today {escape(card.budget)}" if card.budget else ""
    return f"{HEALTH.get(card.worker, '⚪')} {_where(card)} *{escape(card.name)}* · {escape(card.worker)}{budget}"


def _where(card: RepoCard) -> str:
    return f"<#{card.channel}>"


def _link(card: RepoCard, turn: TurnNote) -> str:
    words = escape(" ".join(turn.text.split()))[:120] or "…"
    return message_link(card.channel, turn.thread_ts, words) if turn.thread_ts else words


def _age(turn: TurnNote, now: datetime) -> str:
    try:
        minutes = max(0, int((now - datetime.fromisoformat(turn.at)).total_seconds() // 60))
    except (ValueError, TypeError):
        return ""
    if minutes < 60:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // 1440} d ago"


def _lines(lines: Sequence[str], limit: int, empty: str) -> list[dict[str, Any]]:
    """One section for several lines: blocks are few, and a phone's screen is small."""
    shown = [*lines[:limit], *([f"… and {len(lines) - limit} more"] if len(lines) > limit else [])] or [empty]
    sections, text = [], ""
    for line in shown:
        if text and len(text) + len(line) > 2800:
            sections.append(_section(text))
            text = ""
        text = f"{text}\n{line}" if text else line[:2900]
    return [*sections, _section(text)]


def _header(text: str) -> dict[str, Any]:
    return {"type": "header", "text": {"type": "plain_text", "text": text}}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}
