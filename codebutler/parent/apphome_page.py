"""App Home: what needs somebody, and the state of everything. Pure. A chat allows about a hundred parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.chat.layout import Placed, Section, asked_part, going_on, packed
from codebutler.domain.model import Asked, TurnNote
from codebutler.domain.refs import ConversationRef, MessageRef
from codebutler.observe.ledger import together, words
from codebutler.protocol.messages import DayUse
from codebutler.text.markup import channel, clip, message_link, plain
from codebutler.text.wording import amount

MAX_NEEDS = 20
MAX_DECISIONS = 40
"""Parts for decisions on this page; the rest is decided in threads."""
MAX_TEXT = 2800
ELSEWHERE = "Too long for this page: open its thread to read it and decide."
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
"""For somebody who pressed a button of a removed repository, until the next change."""


class RepoCard(Struct, frozen=True):
    """A repository as one of its users sees it. ``trouble``: its problem, "" if it has none; ``load``: the
    number of runs of each kind, "" if there are none; ``today``: today's use, "" if unknown; ``week``: what
    was used on the last seven days. ``channel_name``: as people read it. ``host``: its machine in a cluster."""

    name: str
    channel: ConversationRef
    worker: str
    turns: tuple[TurnNote, ...] = ()
    trouble: str = ""
    today: str = ""
    load: str = ""
    channel_name: str = ""
    host: str = ""
    week: DayUse = field(default_factory=DayUse)


def stranger(key: str) -> list[Section]:
    """The page of a person who may use nothing here."""
    what_to_do = f"Its owner can add your user ID to `{key}`."
    return [Section(f"You are not authorized to use CodeButler here. {what_to_do}")]


def home(cards: Sequence[RepoCard], trouble: str, now: datetime) -> list[Section]:
    """What needs somebody first, then problems, recent work, and every repository."""
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
        *_week(cards),
        Section("Repositories", "heading"),
        *_lines(
            [repo_line(card) for card in cards],
            MAX_REPOS,
            "No repositories yet: `codebutler add-repo PATH` adds one.",
        ),
    ]


def _week(cards: Sequence[RepoCard]) -> list[Section]:
    """The use of the last seven days; nothing if there was none."""
    used = sorted(
        (card for card in cards if card.week.runs),
        key=lambda card: (-card.week.usd, -card.week.runs, card.name),
    )
    if not used:
        return []
    lines = [f"{_where(card)} {plain(words(card.week))}" for card in used]
    whole = [f"Total: {plain(words(together(card.week for card in used)))}"] if len(used) > 1 else []
    return [Section("Last 7 days", "heading"), *_lines([*whole, *lines], MAX_RECENT, "")]


def _needs(needs: Sequence[tuple[RepoCard, TurnNote]], now: datetime) -> list[Section]:
    """Each with its link and, as far as there is room, its card's buttons."""
    if not needs:
        return [Section("Nothing needs you.")]
    parts: list[Section] = []
    room, shown = MAX_DECISIONS, Counter[str]()
    for card, turn in needs[:MAX_NEEDS]:
        decisions = _decisions(card, turn)
        shown.update(asked.id for asked in turn.asked)
        # A worker may ask for the same twice, and a chat refuses a whole page for that.
        if sum(map(_size, decisions)) > room or any(shown[asked.id] > 1 for asked in turn.asked):
            decisions = []
        room -= sum(map(_size, decisions))
        begins = bool(parts) and bool(decisions or parts[-1].buttons)
        parts += [Section(clip(need_line(card, turn, now), MAX_TEXT), begins=begins), *decisions]
    left = len(needs) - MAX_NEEDS
    return [*parts, *([Section(f"… and {left} more")] if left > 0 else [])]


def _size(part: Section) -> int:
    """In rows: buttons of the same kind below one another."""
    kinds = Counter(button.action for button in part.buttons)
    return bool(part.markdown) + bool(part.boxes) + max(kinds.values(), default=0)


def _decisions(card: RepoCard, turn: TurnNote) -> list[Section]:
    if turn.state == "waiting":
        return [_asked(card, turn, asked) for asked in turn.asked]
    if not turn.card or not turn.id:
        return []
    buttons = tuple(replace(each, value=_place(card, turn, turn.card, each.value)) for each in going_on(turn))
    return [Section(buttons=buttons)]


def _asked(card: RepoCard, turn: TurnNote, asked: Asked) -> Section:
    """A request that is not shown completely cannot be allowed here."""
    if not asked.text:
        return Section(ELSEWHERE, "note")
    part = asked_part(asked)
    buttons = tuple(replace(each, value=_place(card, turn, asked.card, each.value)) for each in part.buttons)
    return replace(part, markdown=clip(part.markdown, MAX_TEXT), buttons=buttons)


def _place(card: RepoCard, turn: TurnNote, shown: MessageRef, value: str) -> str:
    return packed(Placed(channel=card.channel, message=shown, value=value, thread=turn.thread or None))


def need_line(card: RepoCard, turn: TurnNote, now: datetime) -> str:
    """A turn that needs somebody: its need, and its link."""
    line = f"{_need(turn)}: {_link(card, turn)} · {_where(card)} · {_age(turn, now)}"
    return f"{line}\n{plain(turn.why)}" if turn.why else line


def _need(turn: TurnNote) -> str:
    match turn.state:
        case "interrupted":
            return "⚠️ Interrupted: continue or drop it"
        case "parked":
            return "⏸️ Paused"
        case _ if turn.asked and all(asked.is_question for asked in turn.asked):
            return "🤔 Needs your answer"
        case _:
            return "🔐 Needs your approval" if turn.asked else "✋ Needs you"


def done_line(card: RepoCard, turn: TurnNote, now: datetime) -> str:
    """A turn and its outcome, with its link."""
    cost = "" if turn.cost_usd is None else f" · {plain(amount('usd', turn.cost_usd))}"
    return f"{SIGNS[turn.state]} {_link(card, turn)} · {_where(card)} · {plain(turn.agent)}{cost} · {_age(turn, now)}"


def repo_line(card: RepoCard) -> str:
    """A repository, its worker's state, its runs, and today's use."""
    told = [
        card.worker,
        f"on {card.host}" if card.host else "",
        card.load,
        f"today {card.today}" if card.today else "",
    ]
    words = " · ".join(plain(each) for each in told if each)
    return f"{HEALTH.get(card.worker, '⚪')} {_where(card)} **{plain(card.name)}** · {words}"


def _where(card: RepoCard) -> str:
    return channel(card.channel, card.channel_name)


def _link(card: RepoCard, turn: TurnNote) -> str:
    words = plain(" ".join(turn.text.split())[:120]) or "…"
    return message_link(card.channel, turn.thread, words) if turn.thread else words


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
