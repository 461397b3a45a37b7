"""At the end of a run that changed something: adds trailers to its commits, posts one card in its thread, and requests
the automatic checks.

The answer is posted first. The card and the request are one transaction; the checks are a deferred command keyed by
the run, and their results are an edit of the card.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from codebutler.config.schema import Check, Config, RepoSettings
from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler.text.wording import one_line
from codebutler_worker.changes.card import BESIDE, WAITING, card, line, review_link, running_line
from codebutler_worker.changes.checking import checks_of
from codebutler_worker.changes.pending import add_checks, card_id, is_at_rest, take_over_checks
from codebutler_worker.changes.race import is_racing
from codebutler_worker.forge.remote import has_remote
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import WORDLESS, own_tree, talks, thread_url
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


def trailers_of(wanted: Sequence[str], turn: TurnRow) -> tuple[str, ...]:
    """The lines that end the message of a commit (``git.trailers``): who asked for the run, its agent, its thread.
    Pure."""
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
