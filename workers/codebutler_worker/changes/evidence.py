"""At the end of a run that changed something: posts one card in its thread, and requests the automatic checks.

The answer is posted first. The card and the request are one transaction; the checks are a deferred command keyed by
the run, and their results are an edit of the card.

The card that compares what the agents of a race did. Pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from msgspec import Struct

from codebutler.config.schema import Check, Config, RepoSettings
from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler.domain.message import (
    DIFF_ACTION,
    DISCARD_RACE_ACTION,
    PICK_RACE_ACTION,
    Button,
    Message,
    said,
)
from codebutler.text.markup import plain
from codebutler.text.wording import amount, count, one_line, span
from codebutler_worker.changes.card import (
    BESIDE,
    WAITING,
    card,
    file_line,
    headline,
    line,
    result_line,
    review_link,
    running_line,
)
from codebutler_worker.changes.checking import checks_of
from codebutler_worker.changes.pending import add_checks, card_id, is_at_rest, take_over_checks
from codebutler_worker.changes.undo import Checked, is_racing
from codebutler_worker.forge.remote import has_remote
from codebutler_worker.present.lines import code
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import WORDLESS, own_tree, prefixes_of, talks, thread_url
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork, place_of
from codebutler_worker.tree.trailers import add_trailers
from codebutler_worker.tree.tree import Difference

LOOKED_AT = 50


async def show_changes(runtime: Runtime, turn: TurnRow, workdir: Path, before: str, after: str) -> None:
    """For a run that changed the tree in ``workdir`` from one snapshot to the other: keep how much, post the card and
    request its checks."""
    if turn.agent in WORDLESS or not talks(runtime.settings.config, turn.agent):
        return
    try:
        tree = await runtime.agents.tree(workdir)
        # How much, without the lines themselves.
        found = await tree.difference(before, after, limit_bytes=1)
    except CodeButlerError as error:
        runtime.log("WRN", f"unknown what run {turn.id} changed: {error}")
        return
    if found.files:
        await _post_changes(runtime, turn, found)


async def _post_changes(runtime: Runtime, turn: TurnRow, found: Difference) -> None:
    config = runtime.settings.config
    checks = checks_of(config.checks, Path(runtime.settings.path))
    can_push = await asyncio.to_thread(has_remote, runtime.settings)
    show = partial(_show, settings=runtime.settings, turn=turn, found=found, checks=checks, can_push=can_push)
    try:
        await runtime.commit(show)
    except StoreError as error:
        # The answer has been posted; the changes can still be asked for.
        runtime.log("ERR", f"cannot show what run {turn.id} changed: {error}")


def _show(
    uow: UnitOfWork,
    *,
    settings: RepoSettings,
    turn: TurnRow,
    found: Difference,
    checks: tuple[Check, ...],
    can_push: bool,
) -> None:
    if is_racing(uow, turn.conversation):
        return  # The race's card shows it beside the others'.
    config, link = settings.config, review_link(settings.name, turn.id)
    uow.turns.update(turn.id, files=len(found.files))
    uow.turns.add_commits(turn.id, [line.partition(" ")[0] for line in found.commits])
    if config.output.changes == "off":
        return
    take_over_checks(uow, config, turn)
    now = uow.turns.get(turn.id) or turn
    # A run that was stopped, or will continue, is not judged yet.
    due = tuple(check for check in checks if check.when == "always") if now.state == "done" else ()
    notes = [BESIDE] if worked_beside(uow, now, config) else []
    if due:
        add_checks(uow, turn, turn.user_id)
        notes.append(running_line(due) if is_at_rest(uow, config, turn.conversation) else WAITING)
    offer = not due and any(check.when != "never" for check in checks)
    if config.output.changes == "line":
        said = line(found, notes=notes, link=link)
    else:
        said = card(found, turn.id, notes=notes, offer=offer, can_push=can_push, link=link)
    uow.post(place_of(turn), said, op_id=card_id(turn.id), value="notice")


def worked_beside(uow: UnitOfWork, turn: TurnRow, config: Config) -> bool:
    """Whether another conversation's agent worked in the same tree during the run."""
    others = uow.turns.find(newest=LOOKED_AT)
    return any(
        _is_in_its_tree(config, each, turn)
        and bool(each.started_at)
        and (each.finished_at or uow.stamp) > (turn.started_at or "")
        for each in others
    )


def _is_in_its_tree(config: Config, other: TurnRow, turn: TurnRow) -> bool:
    """Whether this is another run that works in the same place and may write there."""
    same = own_tree(config, other.conversation) == own_tree(config, turn.conversation)
    return same and other.id != turn.id and talks(config, other.agent)


# The trailers of commits (``git.trailers``): who asked for the run, its agent, its thread.


def trailers_of(wanted: Sequence[str], turn: TurnRow) -> tuple[str, ...]:
    """The lines that end the message of a commit. Pure."""
    known = {
        "asked": ("Asked-by", turn.user_id),
        "agent": ("Agent", turn.agent),
        "thread": ("Thread", thread_url(turn)),
    }
    found = [known[each] for each in dict.fromkeys(wanted)]
    return tuple(f"{name}: {one_line(value)}" for name, value in found if value)


def with_trailers(message: str, wanted: Sequence[str], turn: TurnRow) -> str:
    """The message of a commit with its trailers. Pure."""
    trailers = trailers_of(wanted, turn)
    return "\n".join((message, "", *trailers)) if trailers else message


async def trail(runtime: Runtime, turn: TurnRow, workdir: Path, before: str) -> None:
    """Add the trailers to what the run's agent committed in ``workdir`` since the snapshot ``before``, before its
    changes are shown. If another run worked in the same place, nobody knows whose commits they are."""
    config = runtime.settings.config
    if turn.agent in WORDLESS or not talks(config, turn.agent):
        return
    try:
        if await runtime.commit(lambda uow: worked_beside(uow, uow.turns.get(turn.id) or turn, config)):
            return
        tree = await runtime.agents.tree(workdir)
        trailers = trailers_of(config.git.trailers, turn)
        if trailers and (number := await add_trailers(tree.git, before, trailers, runtime.pushed)):
            runtime.log("INF", f"added trailers to {number} commits of run {turn.id}")
    except CodeButlerError as error:
        runtime.log("WRN", f"could not add trailers to the commits of run {turn.id}: {error}")


FILES_SHOWN = 4
ANSWER_CHARS = 500
WHY_CHARS = 300
PICK_ONE = "🏁 Pick one: its work is merged, the other's is discarded."
ONE_LEFT = "🏁 Only one of them changed anything."
UNCHANGED = "It changed no files."
NOT_KNOWN = "⚠️ Its changes are unknown: see the log."
NONE_LEFT = "🏁 Neither of them changed anything."


class Work(Struct, frozen=True):
    """All that an agent has changed (None = nothing), and the snapshots between which it lies."""

    found: Difference | None = None
    before: str = ""
    after: str = ""
    is_known: bool = True


class Contender(Struct, frozen=True):
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
