"""The trailers of commits (``git.trailers``): who asked for the run, its agent, its thread."""

from __future__ import annotations

from collections.abc import Sequence

from codebutler.domain.errors import CodeButlerError
from codebutler_worker.changes.evidence import worked_beside
from codebutler_worker.changes.snapshots import Snapshots
from codebutler_worker.present.lines import one_line
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import WORDLESS, talks, thread_url
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.tree.trailers import add_trailers


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


async def trail(runtime: Runtime, turn: TurnRow, snapshots: Snapshots) -> None:
    """Add the trailers to what the run's agent committed, before its changes are shown. If another run worked in the
    same place, nobody knows whose commits they are."""
    config = runtime.settings.config
    if not config.git.trailers or snapshots.before is None or turn.agent in WORDLESS:
        return
    if not talks(config, turn.agent):
        return
    try:
        if await runtime.commit(lambda uow: worked_beside(uow, uow.turns.get(turn.id) or turn, config)):
            return
        tree = await runtime.agents.tree(snapshots.workdir)
        trailers = trailers_of(config.git.trailers, turn)
        if trailers and (number := await add_trailers(tree.git, snapshots.before, trailers, runtime.pushed)):
            runtime.log("INF", f"added trailers to {number} commits of turn {turn.id}")
    except CodeButlerError as error:
        runtime.log("WRN", f"no trailers were added to the commits of turn {turn.id}: {error}")
