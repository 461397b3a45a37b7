"""The judge of a whole record: what people said, what the house answered, and what was really done. Pure.

Each message carries a token that its answer repeats and that its work leaves behind, so that the record can
be read from outside: no ledger of the product is believed here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from codebutler.chat.slack.metadata import op_id_of

FINAL = frozenset({"white_check_mark", "x", "octagonal_sign"})
FOOTER = "_tokens:"
CROSS, DROPPED = "❌", "🛑"

Message = Mapping[str, Any]
Kind = Literal["lost", "doubled", "disordered"]


@dataclass(frozen=True, slots=True)
class Said:
    """A person's message. ``root`` is the ts of its thread, its own if it began one."""

    channel: str
    ts: str
    root: str
    token: str


@dataclass(frozen=True, slots=True)
class Record:
    """Everything there is to judge.

    ``threads``: by channel and root, every message as the workspace shows it at the end. ``done``: by channel,
    the tokens in the order in which the work was done. ``continued``: by channel and root, how often a person
    let an interrupted turn go on. ``came_in``: by channel and ts, the messages' order of arrival: what Slack
    could deliver only after a later message cannot be answered before it.
    """

    said: Sequence[Said]
    threads: Mapping[tuple[str, str], Sequence[Message]]
    done: Mapping[str, Sequence[str]] = field(default_factory=dict)
    continued: Mapping[tuple[str, str], int] = field(default_factory=dict)
    came_in: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    kind: Kind
    said: Said | None
    text: str


def check(record: Record) -> list[Violation]:
    """Each message has one outcome, each operation happened once, each conversation kept its order."""
    found = [violation for said in record.said for violation in _outcome(record, said)]
    found += _posted_twice(record)
    found += _worked_twice(record)
    return found + _disordered(record)


def whole_text(message: Message) -> str:
    """A message's text and the texts of its blocks."""
    blocks = [str(block.get("text", "")) for block in message.get("blocks", [])]
    return "\n".join([str(message.get("text", "")), *blocks])


def told_by(answer: Message) -> str:
    """Its text without what a difference shows around a change, which earlier answers told."""
    return re.sub(r"(?:\n|\\n) [^\n\\]*", "", whole_text(answer))


def reactions_of(message: Message) -> set[str]:
    return {str(reaction["name"]) for reaction in message.get("reactions", [])}


def answers(thread: Sequence[Message]) -> list[Message]:
    """The agent's answers, in order."""
    return [message for message in thread if message.get("bot_id") and FOOTER in whole_text(message)]


def _outcome(record: Record, said: Said) -> list[Violation]:
    thread = record.threads.get((said.channel, said.root), ())
    own = next((message for message in thread if message["ts"] == said.ts), None)
    names = reactions_of(own) if own is not None else set()
    if len(names) != 1 or not names <= FINAL:
        told = any(said.token in told_by(message) for message in answers(thread))
        state = "answered" if told else "not answered"
        return [Violation("lost", said, f"{state}, and its marks are {sorted(names) or 'none'}")]
    count = sum(said.token in told_by(message) for message in answers(thread))
    if count > 1:
        return [Violation("doubled", said, f"answered {count} times")]
    if names == {"white_check_mark"} and count == 0 and not record.continued.get((said.channel, said.root)):
        return [Violation("lost", said, "marked as done, and no answer speaks of it")]
    later = [whole_text(message) for message in thread if message["ts"] > said.ts and message.get("bot_id")]
    expected = {"x": CROSS, "octagonal_sign": DROPPED}.get(next(iter(names)))
    if expected and not any(expected in text for text in later):
        return [Violation("lost", said, f"marked {names}, and nobody said why")]
    return []


def _posted_twice(record: Record) -> list[Violation]:
    """One operation made two messages."""
    ops = Counter(
        op_id for thread in record.threads.values() for message in thread if (op_id := op_id_of(message))
    )
    return [Violation("doubled", None, f"operation {op} made {n} messages") for op, n in ops.items() if n > 1]


def _worked_twice(record: Record) -> list[Violation]:
    """Work was done again though nobody had asked for it."""
    found = []
    for said in record.said:
        times = Counter(record.done.get(said.channel, ()))[said.token]
        if times > 1 + record.continued.get((said.channel, said.root), 0):
            found.append(Violation("doubled", said, f"carried out {times} times"))
    return found


def _disordered(record: Record) -> list[Violation]:
    """In a conversation that nobody had to continue, answers and work follow the order of the messages."""
    found = []
    for earlier, later, what in _swaps(record):
        if _arrival(record, earlier) < _arrival(record, later):
            found.append(Violation("disordered", earlier, f"{what} after {later.token}"))
    return found


def overtaken(record: Record) -> int:
    """How many messages came in after a later one, because of an outage, and were answered in that order."""
    return len(
        {
            earlier
            for earlier, later, _ in _swaps(record)
            if _arrival(record, earlier) > _arrival(record, later)
        }
    )


def _arrival(record: Record, said: Said) -> tuple[int, str]:
    return record.came_in.get((said.channel, said.ts), 0), said.ts


def _swaps(record: Record) -> list[tuple[Said, Said, str]]:
    """Pairs of a conversation of which the later one came first, and in what."""
    found = []
    for key, thread in record.threads.items():
        if record.continued.get(key):
            continue
        mine = {said.token: said for said in record.said if (said.channel, said.root) == key}
        texts = [told_by(message) for message in answers(thread)]
        # Within one answer the messages stand in the order in which the agent was given them.
        answered = [token for text in texts for token in sorted(mine, key=text.find) if token in text]
        worked = [token for token in record.done.get(key[0], ()) if token in mine]
        for what, tokens in (("answered", answered), ("carried out", worked)):
            order = [mine[token] for token in tokens]
            found += [
                (after, before, what)
                for place, before in enumerate(order)
                for after in order[place + 1 :]
                if after.ts < before.ts
            ]
    return found
