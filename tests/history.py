"""The judge of a whole record: what people said, what the house answered, and what was really done. Pure.

Each message carries a token that its answer repeats and that its work leaves behind, so that the record can
be read from outside: no ledger of the product is believed here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from codebutler.chat.slack.answers import op_id_of

FINAL = frozenset({"white_check_mark", "x", "octagonal_sign"})
FOOTER = "_tokens:"
IN_FILE = "_Full answer attached._"
CROSS, DROPPED, SPOKEN = "❌", "🛑", "⏰"
# Of an answer in several posts only the last one has a footer: the others show what was added.
ADDED = re.compile(r"(?:\n|\\n)\+token-")
TOLD = re.compile(r"(?:token|line|paper)-[\d/]+")

Message = Mapping[str, Any]
Kind = Literal["lost", "doubled", "disordered", "credited"]


@dataclass(frozen=True, slots=True)
class Said:
    """A person's message. ``root`` is the ts of its thread, its own if it began one.

    ``instead``: the token it has since it was edited; either is carried out. ``lines``: what else its answer has to
    show, each of them once. ``gone`` and ``kept``: files that it asked to delete, and a person let it or not.
    ``is_timer``: it is to be said later by the app, and answered then.
    """

    channel: str
    ts: str
    root: str
    token: str
    instead: str = ""
    lines: tuple[str, ...] = ()
    gone: str = ""
    kept: str = ""
    is_timer: bool = False

    @property
    def tokens(self) -> tuple[str, ...]:
        """The one its answer has, or the other."""
        return (self.token, self.instead) if self.instead else (self.token,)


@dataclass(frozen=True, slots=True)
class Record:
    """Everything there is to judge.

    ``threads``: by channel and root, every message as the workspace shows it at the end. ``done``: by channel,
    the tokens in the order in which the work was done. ``continued``: by channel and root, how often a person
    let an interrupted turn go on. ``came_in``: by channel and ts, the messages' order of arrival: what Slack
    could deliver only after a later message cannot be answered before it. ``files``: the texts of what was uploaded,
    by ID. ``there``: by channel, the files that are there at the end.
    """

    said: Sequence[Said]
    threads: Mapping[tuple[str, str], Sequence[Message]]
    done: Mapping[str, Sequence[str]] = field(default_factory=dict)
    continued: Mapping[tuple[str, str], int] = field(default_factory=dict)
    came_in: Mapping[tuple[str, str], int] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    there: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    kind: Kind
    said: Said | None
    text: str


def check(record: Record) -> list[Violation]:
    """Each message has one outcome, each operation happened once, each conversation kept its order."""
    found = [violation for said in record.said for violation in _outcome(record, said)]
    found += _posted_twice(record)
    found += _credited_wrongly(record)
    found += _worked_twice(record)
    return found + _disordered(record)


def whole_text(message: Message) -> str:
    """A message's text and the texts of its blocks."""
    blocks = [str(block.get("text", "")) for block in message.get("blocks", [])]
    return "\n".join([str(message.get("text", "")), *blocks])


def told_by(answer: Message) -> str:
    """Its text without what a difference shows around a change, which earlier answers told."""
    return _changed(whole_text(answer))


def _changed(text: str) -> str:
    return re.sub(r"(?:\n|\\n) [^\n\\]*", "", text)


def reactions_of(message: Message) -> set[str]:
    return {str(reaction["name"]) for reaction in message.get("reactions", [])}


def answers(thread: Sequence[Message]) -> list[Message]:
    """The agent's answers, in order."""
    return [message for message in thread if message.get("bot_id") and _is_answer(whole_text(message))]


def _is_answer(text: str) -> bool:
    return FOOTER in text or bool(ADDED.search(text) and not text.startswith(CROSS))


def spoken(said: Said, thread: Sequence[Message]) -> list[Message]:
    """What a timer has said when its time had come."""
    return [message for message in thread if is_spoken(said, whole_text(message))]


def is_spoken(said: Said, text: str) -> bool:
    """Whether the app says so for a timer."""
    return text.startswith(f"{SPOKEN} append `{said.token}`")


def _files(record: Record, thread: Sequence[Message]) -> list[str]:
    """What the agent sent as files."""
    ours = (message for message in thread if message.get("bot_id"))
    return [record.files.get(file["id"], "") for message in ours for file in message.get("files", [])]


def _outcome(record: Record, said: Said) -> list[Violation]:
    thread = record.threads.get((said.channel, said.root), ())
    own = next((message for message in thread if message["ts"] == said.ts), None)
    if said.is_timer:
        times = spoken(said, thread)
        if len(times) != 1:
            return [Violation("doubled" if times else "lost", said, f"said {len(times)} times")]
        own = times[0]
    names = reactions_of(own) if own is not None else set()
    posts = [told_by(message) for message in answers(thread)]
    files = [_changed(text) for text in _files(record, thread)]
    counts = [sum(any(token in text for token in said.tokens) for text in told) for told in (posts, files)]
    if len(names) != 1 or not names <= FINAL:
        state = "answered" if any(counts) else "not answered"
        return [Violation("lost", said, f"{state}, and its marks are {sorted(names) or 'none'}")]
    if max(counts) > 1:
        return [Violation("doubled", said, f"answered {max(counts)} times")]
    if names == {"white_check_mark"} and not record.continued.get((said.channel, said.root)):
        if not any(counts):
            return [Violation("lost", said, "marked as done, and no answer speaks of it")]
        return _incomplete(record, said, thread)
    later = [whole_text(message) for message in thread if message["ts"] > said.ts and message.get("bot_id")]
    expected = {"x": CROSS, "octagonal_sign": DROPPED}.get(next(iter(names)))
    if expected and not any(expected in text for text in later):
        return [Violation("lost", said, f"marked {names}, and nobody said why")]
    return []


def _incomplete(record: Record, said: Said, thread: Sequence[Message]) -> list[Violation]:
    """What is missing of an answer, or there twice, and what was not done as decided."""
    found = []
    posts = [whole_text(message) for message in thread if message.get("bot_id")]
    files = _files(record, thread)
    for line in said.lines:
        in_posts, in_files = sum(line in text for text in posts), sum(line in text for text in files)
        if not in_posts + in_files:
            found.append(Violation("lost", said, f"no answer shows {line}"))
        if max(in_posts, in_files) > 1:
            found.append(Violation("doubled", said, f"{line} is in {in_posts} posts, {in_files} files"))
    there = record.there.get(said.channel, ())
    if said.gone in there or (said.kept and said.kept not in there):
        found.append(Violation("lost", said, "what was decided about its file was not done"))
    return found


def _credited_wrongly(record: Record) -> list[Violation]:
    """Each answer that is too long for a post has exactly one file of its own, and no file is without one."""
    found = []
    for key, thread in record.threads.items():
        heads = [whole_text(message) for message in answers(thread) if IN_FILE in whole_text(message)]
        files = _files(record, thread)
        if len(files) != len(heads):
            found.append(Violation("credited", None, f"{key}: {len(heads)} answers, {len(files)} files"))
        whole = Counter(frozenset(TOLD.findall(text)) for text in files)
        begun = (set(TOLD.findall(head)) for head in heads)
        alone = [sorted(told)[:3] for told in begun if not any(told <= file for file in whole)]
        found += [Violation("credited", None, f"{key}: no file for {told}") for told in alone]
        again = [sorted(told)[:3] for told, times in whole.items() if times > 1]
        found += [Violation("credited", None, f"{key}: several files with {told}") for told in again]
    return found


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
        done = Counter(record.done.get(said.channel, ()))
        times = sum(done[token] for token in said.tokens)
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
        in_thread = [said for said in record.said if (said.channel, said.root) == key and not said.is_timer]
        mine = {token: said for said in in_thread for token in said.tokens}
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
