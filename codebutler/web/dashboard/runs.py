"""Runs, scheduled jobs and timers as the dashboard shows them, and what a person can do about each. Pure. The buttons
of a run are those of its card in the chat: pressing one is the same click."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct

from codebutler.chat.layout import asked_part, going_on
from codebutler.domain.message import REASON_ACTION, STOP_ACTION, Button
from codebutler.domain.model import Asked, TurnNote
from codebutler.domain.refs import MessageRef
from codebutler.schedule.commands import DISABLED
from codebutler.text.markup import Addresses, spans
from codebutler.text.markup import words as words_of
from codebutler.text.wording import amount

TEXT_CHARS = 200
WORD_CHARS = 80
MAX_ASKED = 10
NAME_CHARS = 100
ASKED_CHARS = 4000
LABEL_CHARS = 200
ATTENTION_STATES = ("waiting", "interrupted", "parked")
ENDED_STATES = ("done", "failed", "stopped")

PieceKind = Literal["text", "code", "block", "strong"]
PIECE_KINDS: Mapping[str, PieceKind] = MappingProxyType({"fence": "block", "code": "code", "bold": "strong"})
NESTED = frozenset(("bold", "italic", "link"))
"""The spans whose text is Markdown again."""
MAX_JOBS = 50
JobAction = Literal["run", "pause", "resume", "cancel"]


class Piece(Struct, frozen=True, array_like=True):
    """A piece of text, and its formatting."""

    kind: PieceKind
    text: str


class ChoiceView(Struct, frozen=True, kw_only=True):
    """A button of the card ``card``. ``asks_why``: it takes a reason."""

    label: str
    action: str
    value: str
    card: str
    style: str = ""
    asks_why: bool = False


class BoxView(Struct, frozen=True, kw_only=True):
    """A box to tick before the button is pressed."""

    label: str
    value: str


class AskedView(Struct, frozen=True, kw_only=True):
    """A request or a question. Without ``text`` its card has to be read first. ``in_words``: it can be answered in
    one's own words."""

    id: str
    text: tuple[Piece, ...]
    boxes: tuple[BoxView, ...] = ()
    choices: tuple[ChoiceView, ...] = ()
    in_words: bool = False


class TurnItem(Struct, frozen=True, kw_only=True):
    """A run: ``what`` it is doing or needs from people, ``text`` the prompt, ``url`` its thread in the chat ("" if
    unknown), ``changes`` the page of its changes ("" if none), ``page`` its
    transcript. ``asked`` and ``choices``: what a person can decide, requests and other buttons."""

    key: str
    id: str
    repo: str
    state: str
    what: str
    text: str
    agent: str
    since: str
    cost: str
    url: str
    changes: str
    page: str
    asked: tuple[AskedView, ...] = ()
    choices: tuple[ChoiceView, ...] = ()


def turn_item(row: Mapping[str, Any], turn: TurnNote, address: Addresses) -> TurnItem:
    """A run of a repository (a row of `codebutler status`)."""
    channel, run = row["channel_id"], turn.id[:WORD_CHARS]
    waits = turn.state == "waiting"
    return TurnItem(
        key=f"{row['name']}/{run or turn.thread[:WORD_CHARS]}",
        id=run,
        repo=row["name"],
        state=turn.state,
        what=_state_text(turn),
        text=excerpt(turn.text) or "…",
        agent=turn.agent[:WORD_CHARS],
        since=turn.at[:WORD_CHARS],
        cost="" if turn.cost_usd is None else amount("usd", turn.cost_usd),
        url=address(channel, MessageRef(turn.thread[:WORD_CHARS])) if channel and turn.thread else "",
        changes=page_path("changes", row["name"], run) if turn.changed and run else "",
        page=page_path("thread", row["name"], run) if run else "",
        asked=tuple(_asked_views(turn)) if waits else (),
        choices=tuple(_run_choices(turn)) if run else (),
    )


def page_path(page: str, repo: str, run: str) -> str:
    """The address of a run's page."""
    return f"/{page}/{quote(repo, safe='')}/{quote(run, safe='')}"


def choices_of(turn: TurnNote) -> Iterator[ChoiceView]:
    """Every button that can be pressed for the run now."""
    if turn.state == "waiting":
        for asked in turn.asked:
            yield from _decisions(asked)
    yield from _run_choices(turn)


def pieces(markdown: str) -> tuple[Piece, ...]:
    """Our own Markdown, ready to be shown without markup."""
    return tuple(
        Piece(PIECE_KINDS.get(span.kind, "text"), words_of(span.text) if span.kind in NESTED else span.text)
        for span in spans(markdown)
        if span.kind != "quote"
    )


def excerpt(text: str) -> str:
    """The beginning, on one line."""
    line = " ".join(text[: TEXT_CHARS * 10].split())
    return line if len(line) <= TEXT_CHARS else f"{line[: TEXT_CHARS - 1]}…"


def one_line(markdown: str) -> str:
    """A card's text on one line, without its icons."""
    return excerpt(words_of(markdown[: TEXT_CHARS * 10]).lstrip("🔐🤔⚠️ "))


def _state_text(turn: TurnNote) -> str:
    match turn.state:
        case "interrupted":
            return "was interrupted: continue or drop it"
        case "parked":
            return f"paused: {excerpt(turn.why)}" if turn.why else "paused: try now or drop it"
        case "waiting":
            return _waiting_text(turn.asked)
    return turn.state


def _waiting_text(asked: Sequence[Asked]) -> str:
    if not asked:
        return "waits for an answer"
    words = one_line(asked[0].text)
    if asked[0].is_question:
        words = f"asks: {words}" if words else "asks"
    more = f" (and {len(asked) - 1} more)" if len(asked) > 1 else ""
    return f"{words or 'needs approval'}{more}"


def asked_view(asked: Asked, text: tuple[Piece, ...], *, first: bool) -> AskedView:
    """A request with its buttons; without them if there is no ``text`` that shows all of it. ``first``: of the run's
    open ones."""
    if not text or not _is_plausible(asked):
        return AskedView(id=asked.id[:NAME_CHARS], text=())
    boxes = asked_part(asked).boxes
    return AskedView(
        id=asked.id,
        text=text,
        boxes=tuple(BoxView(label=box.label, value=box.value) for box in boxes),
        choices=tuple(_decisions(asked)),
        # Words in the thread answer the first open question.
        in_words=asked.is_question and first,
    )


def _asked_views(turn: TurnNote) -> Iterator[AskedView]:
    for at, asked in enumerate(turn.asked[:MAX_ASKED]):
        text = pieces(asked.text) if len(asked.text) <= ASKED_CHARS else ()
        yield asked_view(asked, text, first=at == 0)


def _decisions(asked: Asked) -> Iterator[ChoiceView]:
    if _is_plausible(asked):
        yield from (_choice(button, asked.card) for button in asked_part(asked).buttons)


def _is_plausible(asked: Asked) -> bool:
    """Whether it is plausible: a worker may have made it up."""
    names = max(len(asked.id), len(asked.card)) <= NAME_CHARS
    options = len(asked.options) <= MAX_ASKED and all(len(each) <= LABEL_CHARS for each in asked.options)
    return names and options


def _run_choices(turn: TurnNote) -> Iterator[ChoiceView]:
    """The buttons about the run itself. A question in passing does not stop its run from ending."""
    if max(len(turn.id), len(turn.thread), len(turn.card)) > NAME_CHARS:
        return
    if turn.card and turn.state in ("interrupted", "parked"):
        yield from (_choice(button, turn.card) for button in going_on(turn))
    elif turn.state == "queued":
        yield _choice(Button("Withdraw", STOP_ACTION, turn.id), turn.thread)
    elif turn.state == "running" or (
        turn.state == "waiting" and not all(asked.is_question for asked in turn.asked)
    ):
        yield _choice(Button("Stop", STOP_ACTION, turn.id, "danger"), turn.thread)


def _choice(button: Button, card: MessageRef) -> ChoiceView:
    return ChoiceView(
        label=button.label.removesuffix("…") if button.action == REASON_ACTION else button.label,
        action=button.action,
        value=button.value,
        card=card,
        style=button.style or "",
        asks_why=button.action == REASON_ACTION,
    )


class JobView(Struct, frozen=True, kw_only=True):
    """A scheduled job, or a timer. ``name``: for its acts; ``title``: for people; ``can``: the possible acts."""

    key: str
    repo: str
    name: str
    title: str
    when: str
    next: str | None
    last: str | None
    last_ok: bool | None
    state: str
    can: tuple[JobAction, ...]


def job_views(jobs: Sequence[Mapping[str, Any]], timers: Sequence[Mapping[str, Any]]) -> tuple[JobView, ...]:
    """The rows of `codebutler jobs` and the timers, the soonest first."""
    found = [*map(_job, jobs), *map(_timer, timers)]
    return tuple(sorted(found, key=_soonest)[:MAX_JOBS])


def _job(row: Mapping[str, Any]) -> JobView:
    paused = f"paused: {one_line(row['paused'])}" if row["paused"] else ""
    return JobView(
        key=f"{row['repo']}/{row['name']}",
        repo=row["repo"],
        name=row["name"],
        title=row["name"],
        when=row["cron"],
        next=None if paused else row["next"],
        last=row["last"],
        last_ok=row["last_ok"] if row["last"] else None,
        state="running" if row["running"] else paused,
        can=_job_actions(row),
    )


def _job_actions(row: Mapping[str, Any]) -> tuple[JobAction, ...]:
    """A job that its file disables can only be run."""
    if row["paused"] == DISABLED:
        return ("run",)
    return ("run", "resume" if row["paused"] else "pause")


def _timer(row: Mapping[str, Any]) -> JobView:
    return JobView(
        key=f"timer/{row['repo']}/{row['id']}",
        repo=row["repo"],
        name=row["id"],
        title=excerpt(row["text"]) or "…",
        when="timer",
        next=row["at"],
        last=None,
        last_ok=None,
        state="",
        can=("cancel",),
    )


def _soonest(job: JobView) -> tuple[float, str]:
    return (datetime.fromisoformat(job.next).timestamp() if job.next else math.inf, job.key)
