"""App Home as blocks. Pure. Slack: views.publish, at most 100 blocks, 3,000 characters in a section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from codebutler.actions import (
    ALLOW_ACTION,
    ANSWER_ACTION,
    DENY_ACTION,
    DROP_ACTION,
    PICK_ACTION,
    REASON_ACTION,
    RETRY_ACTION,
    TICKED,
)
from codebutler.chat.slack.forms import Placed, packed
from codebutler.model import Asked, TurnNote
from codebutler.text.amounts import amount
from codebutler.text.escape import escape, neutralise
from codebutler.text.links import message_link

MAX_NEEDS = 20
MAX_DECISIONS = 40
"""Blocks with which to decide here; what is beyond is decided in its thread."""
MAX_TEXT = 2800
ELSEWHERE = "Too long for this page: open its thread to read and decide it."
LABEL_CHARS = 75
MAX_RECENT = 10
MAX_REPOS = 40
NEEDS = ("waiting", "interrupted", "parked")
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
    ``load``: how many runs there are of each kind, "" where there are none; ``today``: what is used today, "" where
    nobody has told."""

    name: str
    channel: str
    worker: str
    turns: tuple[TurnNote, ...] = ()
    trouble: str = ""
    today: str = ""
    load: str = ""


def stranger() -> list[dict[str, Any]]:
    """For somebody who may use nothing here."""
    what_to_do = "Its owner can add your user ID to `slack.allowedUsers`."
    return [_section(f"You are not authorized to use CodeButler here. {what_to_do}")]


def not_served() -> list[dict[str, Any]]:
    """For somebody who pressed a button of a repository that is gone, until the next change."""
    return [_section("⚠️ That repository is not served any more: nothing was decided.")]


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
        *_needs(needs, now),
        *([_header("Problems"), *_lines(troubles, MAX_REPOS, "")] if troubles else []),
        _header("Recent work"),
        *_lines(
            [done_line(card, turn, now) for card, turn in recent],
            MAX_RECENT,
            "Nothing yet: write in a channel, or to me under Messages.",
        ),
        _header("Repositories"),
        *_lines(
            [repo_line(card) for card in cards],
            MAX_REPOS,
            "None is served: `codebutler add-repo PATH` adds one.",
        ),
    ]


def _needs(needs: Sequence[tuple[RepoCard, TurnNote]], now: datetime) -> list[dict[str, Any]]:
    """Each with its link and, as far as there is room, with the buttons of its card."""
    if not needs:
        return [_section("Nothing. Everything is taken care of.")]
    blocks: list[dict[str, Any]] = []
    room = MAX_DECISIONS
    for card, turn in needs[:MAX_NEEDS]:
        decisions = _decisions(card, turn)
        if len(decisions) > room:
            decisions = []
        room -= len(decisions)
        if blocks and (decisions or blocks[-1]["type"] == "actions"):
            blocks.append({"type": "divider"})
        blocks += [_section(need_line(card, turn, now)[:MAX_TEXT]), *decisions]
    left = len(needs) - MAX_NEEDS
    return [*blocks, *([_section(f"… and {left} more")] if left > 0 else [])]


def _decisions(card: RepoCard, turn: TurnNote) -> list[dict[str, Any]]:
    if turn.state == "waiting":
        return [block for asked in turn.asked for block in _asked(card, turn, asked)]
    if not turn.card_ts or not turn.id:
        return []
    go_on = "Try now" if turn.state == "parked" else "Continue"
    place = _place(card, turn, turn.card_ts, turn.id)
    return [_row(_button(go_on, RETRY_ACTION, place, "primary"), _button("Drop", DROP_ACTION, place))]


def _asked(card: RepoCard, turn: TurnNote, asked: Asked) -> list[dict[str, Any]]:
    """What is not shown here as a whole cannot be allowed here."""
    if not asked.text:
        return [_context(ELSEWHERE)]
    shown = _section(neutralise(asked.text)[:MAX_TEXT])
    if asked.several and asked.options:
        return [shown, *_boxes(card, turn, asked)]
    if asked.is_question:
        values = [_place(card, turn, asked.card_ts, f"{asked.id}:{at}") for at in range(len(asked.options))]
        rows = [
            _row(_button(neutralise(option), ANSWER_ACTION, value))
            for option, value in zip(asked.options, values, strict=True)
        ]
        return [shown, *rows]
    place = _place(card, turn, asked.card_ts, asked.id)
    buttons = [
        _button("Allow", ALLOW_ACTION, place, "primary"),
        _button("Deny", DENY_ACTION, place, "danger"),
        _button("Deny with a reason…", REASON_ACTION, place),
    ]
    return [shown, _row(*buttons)]


def _boxes(card: RepoCard, turn: TurnNote, asked: Asked) -> list[dict[str, Any]]:
    """Boxes to tick, and a button: the same as on the card."""
    options = [
        {
            "text": {"type": "plain_text", "text": neutralise(option)[:LABEL_CHARS] or "…"},
            "value": f"{asked.id}:{at}",
        }
        for at, option in enumerate(asked.options)
    ]
    group = {"type": "checkboxes", "action_id": PICK_ACTION, "options": options}
    done = _button(
        "Done", ANSWER_ACTION, _place(card, turn, asked.card_ts, f"{asked.id}:{TICKED}"), "primary"
    )
    return [{**_row(group), "block_id": asked.id}, _row(done)]


def _context(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}


def _place(card: RepoCard, turn: TurnNote, card_ts: str, value: str) -> str:
    return packed(
        Placed(channel=card.channel, message_ts=card_ts, value=value, thread_ts=turn.thread_ts or None)
    )


def _button(label: str, action_id: str, value: str, style: str = "") -> dict[str, Any]:
    words = {"type": "plain_text", "text": label[:LABEL_CHARS] or "…"}
    element: dict[str, Any] = {"type": "button", "text": words, "action_id": action_id, "value": value}
    return {**element, "style": style} if style else element


def _row(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


def need_line(card: RepoCard, turn: TurnNote, now: datetime) -> str:
    """A turn that needs somebody: what for, and its link."""
    line = f"{_need(turn)}: {_link(card, turn)} · {_where(card)} · {_age(turn, now)}"
    return f"{line}\n{escape(neutralise(turn.why))}" if turn.why else line


def _need(turn: TurnNote) -> str:
    match turn.state:
        case "interrupted":
            return "⚠️ Interrupted, continue or drop it"
        case "parked":
            return "⏸️ Paused"
        case _ if turn.asked and all(asked.is_question for asked in turn.asked):
            return "🤔 Needs your answer"
        case _:
            return "🔐 Needs your approval" if turn.asked else "✋ Needs you"


def done_line(card: RepoCard, turn: TurnNote, now: datetime) -> str:
    """A turn and what became of it, with its link."""
    cost = "" if turn.cost_usd is None else f" · {escape(amount('usd', turn.cost_usd))}"
    return f"{SIGNS[turn.state]} {_link(card, turn)} · {_where(card)} · {escape(turn.agent)}{cost} · {_age(turn, now)}"


def repo_line(card: RepoCard) -> str:
    """A repository, how its worker does, how many runs there are, and what they have used today."""
    told = [card.worker, card.load, f"today {card.today}" if card.today else ""]
    words = " · ".join(escape(each) for each in told if each)
    return f"{HEALTH.get(card.worker, '⚪')} {_where(card)} *{escape(card.name)}* · {words}"


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
    if minutes < 1:
        return "just now"
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
