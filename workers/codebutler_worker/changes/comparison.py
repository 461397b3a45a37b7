"""The card that compares what the agents of a race did. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from codebutler.domain.message import (
    DIFF_ACTION,
    DISCARD_RACE_ACTION,
    PICK_RACE_ACTION,
    Button,
    Message,
    said,
)
from codebutler.text.amounts import amount
from codebutler.text.markup import plain
from codebutler_worker.changes.card import file_line, headline, result_line, review_link
from codebutler_worker.changes.racing import Checked
from codebutler_worker.present.lines import code, count, one_line, span
from codebutler_worker.runtime.turns import prefixes_of
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.tree.tree import Difference

FILES_SHOWN = 4
ANSWER_CHARS = 500
WHY_CHARS = 300
PICK_ONE = "🏁 Pick one: its work is merged, the other's is discarded."
ONE_LEFT = "🏁 Only one of them changed anything."
UNCHANGED = "It changed no files."
NOT_KNOWN = "⚠️ Its changes are unknown: see the log."
NONE_LEFT = "🏁 Neither of them changed anything."


@dataclass(frozen=True, slots=True)
class Work:
    """All that an agent has changed (None = nothing), and the snapshots between which it lies."""

    found: Difference | None = None
    before: str = ""
    after: str = ""
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Contender:
    """One agent's part: its last run, its work, and the checks on that."""

    run: TurnRow
    work: Work
    checked: Checked

    @property
    def can_be_picked(self) -> bool:
        """Whether there is, or may be, anything to continue with."""
        return self.run.state == "done" or self.work.found is not None or not self.work.is_known


def racing_line(agents: Sequence[str]) -> str:
    """A race has begun."""
    return (
        f"🏁 {named(agents)} work on this, each in its own worktree, based on the last commit. "
        "When both have finished, a card compares them."
    )


def checking_line(agents: Sequence[str], checks: Sequence[str]) -> str:
    """The runs have ended."""
    return f"🏁 {named(agents)} have finished. Running {', '.join(map(code, checks))} on each …"


def compared(repo: str, entries: Sequence[Contender], redact: Callable[[str], str]) -> Message:
    """The card: each agent's result, and buttons to pick one."""
    able = [each for each in entries if each.can_be_picked]
    head = PICK_ONE if len(able) > 1 else ONE_LEFT if able else NONE_LEFT
    parts = [_part(repo, number, each, redact) for number, each in enumerate(entries, start=1)]
    buttons = [button for each in able for button in _buttons(each)]
    buttons += [Button("Discard both", DISCARD_RACE_ACTION, able[0].run.id, "danger")] if able else []
    return said("\n\n".join([head, *parts]), *buttons)


def _buttons(entry: Contender) -> list[Button]:
    name, run_id = prefixes_of(entry.run.agent)[-1], entry.run.id
    diff = [Button(f"Diff {name}", DIFF_ACTION, run_id)] if entry.work.found else []
    return [*diff, Button(f"Pick {name}", PICK_RACE_ACTION, run_id, "primary")]


def _part(repo: str, number: int, entry: Contender, redact: Callable[[str], str]) -> str:
    run, found = entry.run, entry.work.found
    lines = [f"**{number}. {named([run.agent])}** · {_outcome(run)}"]
    if run.state != "done" and (why := one_line(redact(run.result or ""), WHY_CHARS)):
        lines.append(f"> {plain(why)}")
    if found is None:
        lines.append(UNCHANGED if entry.work.is_known else NOT_KNOWN)
    else:
        lines += [f"{headline(found)}{review_link(repo, run.id)}", *map(file_line, found.files[:FILES_SHOWN])]
        more = len(found.files) - FILES_SHOWN
        lines += [f"… and {count(more, 'more file')}"] if more > 0 else []
    lines += [*map(result_line, entry.checked.results), *filter(None, [entry.checked.note])]
    if run.state == "done" and (text := one_line(redact(run.result or ""), ANSWER_CHARS)):
        lines.append(f"> {plain(text)}")
    return "\n".join(lines)


def _outcome(run: TurnRow) -> str:
    """``✅ done in 2m05s · $0.12``."""
    if run.started_at is None:
        return "⏹️ did not start"
    end = datetime.fromisoformat(run.finished_at or run.started_at)
    seconds = run.worked_s or (end - datetime.fromisoformat(run.started_at)).total_seconds()
    how = {"done": "✅ done in", "failed": "❌ failed after"}.get(run.state, "🛑 stopped after")
    tokens = run.input_tokens + run.output_tokens
    cost = (
        amount("usd", run.cost_usd)
        if run.cost_usd is not None
        else amount("tokens", tokens)
        if tokens
        else ""
    )
    return " · ".join(part for part in (f"{how} {span(seconds)}", cost) if part)


def named(agents: Sequence[str]) -> str:
    """`` `claude` and `kimi` ``, as people name them."""
    return " and ".join(code(prefixes_of(agent)[-1]) for agent in agents)
