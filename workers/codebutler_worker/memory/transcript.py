"""What was said in a conversation since it was last gone over, cut to what a small model can read."""

from __future__ import annotations

from collections.abc import Sequence

from codebutler.config.schema import Config
from codebutler_worker.desk.naming import WORDLESS, talks
from codebutler_worker.memory.asking import Spoken
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork

LOOKED_AT = 40
MESSAGE_CHARS = 3_000
TOTAL_CHARS = 24_000


def said_since(uow: UnitOfWork, config: Config, conversation: str, up_to: str) -> tuple[Spoken, ...]:
    """The turns of agents that ended after ``up_to``, oldest first. Only what people who may instruct agents wrote is
    theirs; everything else is an agent's."""
    turns = [turn for turn in uow.turns.newest(LOOKED_AT, conversation) if _counts(turn, config, up_to)]
    said: list[Spoken] = []
    for turn in reversed(turns):
        said += [Spoken(row.from_id, row.content, is_person=True) for row in uow.messages.of_turn(turn.id)]
        said.append(Spoken(turn.agent, turn.result or ""))
    return fitting(said)


def fitting(said: Sequence[Spoken]) -> tuple[Spoken, ...]:
    """Each text cut in its middle, and the oldest left out until all of it fits."""
    kept: list[Spoken] = []
    room = TOTAL_CHARS
    for each in reversed(said):
        text = _cut(each.text.strip())
        room -= len(text)
        if room < 0:
            break
        if text:
            kept.append(Spoken(each.who, text, each.is_person))
    return tuple(reversed(kept))


def _counts(turn: TurnRow, config: Config, up_to: str) -> bool:
    ended = turn.state == "done" and (turn.finished_at or "") > up_to
    return ended and turn.agent not in WORDLESS and talks(config, turn.agent)


def _cut(text: str) -> str:
    if len(text) <= MESSAGE_CHARS:
        return text
    half = MESSAGE_CHARS // 2
    return f"{text[:half]} … {text[-half:]}"
