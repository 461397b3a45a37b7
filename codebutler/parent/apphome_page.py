"""App Home: what needs somebody, and how it goes. Pure. A chat takes about a hundred parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from codebutler.chat.layout import Box, Placed, Section, done_button, packed
from codebutler.domain.message import (
    ALLOW_ACTION,
    ANSWER_ACTION,
    DENY_ACTION,
    DROP_ACTION,
    REASON_ACTION,
    RETRY_ACTION,
    Button,
    box_value,
)
from codebutler.domain.model import Asked, TurnNote
from codebutler.text.amounts import amount
from codebutler.text.markup import channel, clip, message_link, plain

MAX_NEEDS = 20
MAX_DECISIONS = 40
"""Parts with which to decide here; what is beyond is decided in its thread."""
MAX_TEXT = 2800
ELSEWHERE = "Too long for this page: open its thread to read and decide it."
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


UNSERVED = Section("⚠️ That repository is no longer served: nothing was decided.")
"""For somebody who pressed a button of a repository that is gone, until the next change."""


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


def stranger(key: str) -> list[Section]:
    """For somebody who may use nothing here."""
    what_to_do = f"Its owner can add your user ID to `{key}`."
    return [Section(f"You are not authorized to use CodeButler here. {what_to_do}")]


def home(cards: Sequence[RepoCard], trouble: str, now: datetime) -> list[Section]:
    """What needs somebody first, then what is out of order, what was done, and every repository."""
    needs = [(card, turn) for card in cards for turn in card.turns if turn.state in NEEDS]
    recent = sorted(
        ((card, turn) for card in cards for turn in card.turns if turn.state in SIGNS),
        key=lambda pair: pair[1].at,
        reverse=True,
    )
    troubles = [f"🔴 {plain(trouble)}"] if trouble else []
    troubles += [f"🔴 **{plain(card.name)}**: {plain(card.trouble)}" for card in cards if card.trouble]
    return [
        Section("What needs you", "heading"),
        *_needs(needs, now),
        *([Section("Problems", "heading"), *_lines(troubles, MAX_REPOS, "")] if troubles else []),
        Section("Recent work", "heading"),
        *_lines(
            [done_line(card, turn, now) for card, turn in recent],
            MAX_RECENT,
            "Nothing yet: write in a channel, or to me under Messages.",
        ),
        Section("Repositories", "heading"),
        *_lines(
            [repo_line(card) for card in cards],
            MAX_REPOS,
            "No repositories yet: `codebutler add-repo PATH` adds one.",
        ),
    ]


def _needs(needs: Sequence[tuple[RepoCard, TurnNote]], now: datetime) -> list[Section]:
    """Each with its link and, as far as there is room, with the buttons of its card."""
    if not needs:
        return [Section("Nothing. Everything is taken care of.")]
    parts: list[Section] = []
    room = MAX_DECISIONS
    for card, turn in needs[:MAX_NEEDS]:
        decisions = _decisions(card, turn)
        if sum(map(_size, decisions)) > room:
            decisions = []
        room -= sum(map(_size, decisions))
        begins = bool(parts) and bool(decisions or parts[-1].buttons)
        parts += [Section(clip(need_line(card, turn, now), MAX_TEXT), begins=begins), *decisions]
    left = len(needs) - MAX_NEEDS
    return [*parts, *([Section(f"… and {left} more")] if left > 0 else [])]


def _size(part: Section) -> int:
    """In rows: buttons of one kind are below one another."""
    kinds = Counter(button.action for button in part.buttons)
    return bool(part.markdown) + bool(part.boxes) + max(kinds.values(), default=0)


def _decisions(card: RepoCard, turn: TurnNote) -> list[Section]:
    if turn.state == "waiting":
        return [_asked(card, turn, asked) for asked in turn.asked]
    if not turn.card_ts or not turn.id:
        return []
    go_on = "Try now" if turn.state == "parked" else "Continue"
    place = _place(card, turn, turn.card_ts, turn.id)
    buttons = (Button(go_on, RETRY_ACTION, place, "primary"), Button("Drop", DROP_ACTION, place))
    return [Section(buttons=buttons)]


def _asked(card: RepoCard, turn: TurnNote, asked: Asked) -> Section:
    """What is not shown here as a whole cannot be allowed here."""
    if not asked.text:
        return Section(ELSEWHERE, "note")
    text = clip(asked.text, MAX_TEXT)
    values = [box_value(asked.id, at) for at in range(len(asked.options))]
    if asked.several and asked.options:
        boxes = tuple(Box(label, value) for label, value in zip(asked.options, values, strict=True))
        done = done_button(asked.id)
        return Section(text, boxes=boxes, buttons=(_placed(card, turn, asked, done),))
    if asked.is_question:
        offered = [
            Button(label, ANSWER_ACTION, value) for label, value in zip(asked.options, values, strict=True)
        ]
    else:
        offered = [
            Button("Allow", ALLOW_ACTION, asked.id, "primary"),
            Button("Deny", DENY_ACTION, asked.id, "danger"),
            Button("Deny with a reason…", REASON_ACTION, asked.id),
        ]
    return Section(text, buttons=tuple(_placed(card, turn, asked, button) for button in offered))


def _placed(card: RepoCard, turn: TurnNote, asked: Asked, button: Button) -> Button:
    """The same as on its card."""
    return replace(button, value=_place(card, turn, asked.card_ts, button.value))


def _place(card: RepoCard, turn: TurnNote, card_ts: str, value: str) -> str:
    return packed(
        Placed(channel=card.channel, message_ts=card_ts, value=value, thread_ts=turn.thread_ts or None)
    )


def need_line(card: RepoCard, turn: TurnNote, now: datetime) -> str:
    """A turn that needs somebody: what for, and its link."""
    line = f"{_need(turn)}: {_link(card, turn)} · {_where(card)} · {_age(turn, now)}"
    return f"{line}\n{plain(turn.why)}" if turn.why else line


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
    cost = "" if turn.cost_usd is None else f" · {plain(amount('usd', turn.cost_usd))}"
    return f"{SIGNS[turn.state]} {_link(card, turn)} · {_where(card)} · {plain(turn.agent)}{cost} · {_age(turn, now)}"


def repo_line(card: RepoCard) -> str:
    """A repository, how its worker does, how many runs there are, and what they have used today."""
    told = [card.worker, card.load, f"today {card.today}" if card.today else ""]
    words = " · ".join(plain(each) for each in told if each)
    return f"{HEALTH.get(card.worker, '⚪')} {_where(card)} **{plain(card.name)}** · {words}"


def _where(card: RepoCard) -> str:
    return channel(card.channel)


def _link(card: RepoCard, turn: TurnNote) -> str:
    words = plain(" ".join(turn.text.split())[:120]) or "…"
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


def _lines(lines: Sequence[str], limit: int, empty: str) -> list[Section]:
    """One part for several lines: parts are few, and a phone's screen is small."""
    shown = [*lines[:limit], *([f"… and {len(lines) - limit} more"] if len(lines) > limit else [])] or [empty]
    sections, text = [], ""
    for line in shown:
        if text and len(text) + len(line) > 2800:
            sections.append(Section(text))
            text = ""
        text = f"{text}\n{line}" if text else clip(line, 2900)
    return [*sections, Section(text)]
