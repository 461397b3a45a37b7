"""Try one agent: its scratch repository, its turns, its row, and the finding that sums it up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from codebutler.config.choices import section_of
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.clock import SystemClock
from codebutler.protocol.capabilities import CAPABILITIES, AgentResult, Cell, CheckupLine, cells_of
from codebutler.protocol.messages import Finding, fail, ok, warn
from codebutler_worker.agents.survey import SUPPORTED, Survey, dotted
from codebutler_worker.trials.kinds import Subject
from codebutler_worker.trials.matrix import STEPS, Trial
from codebutler_worker.trials.turns import Trier, scratch_repository
from codebutler_worker.worker.roster import Roster


def price_of(subjects: Sequence[Subject]) -> str:
    """Announces the turns that are about to run. Pure."""
    if not subjects:
        return "No agent is ready, so nothing was tried."
    numbers = ", ".join(f"{subject.name} {len(subject.turns)}" for subject in subjects)
    total = sum(len(subject.turns) for subject in subjects)
    return f"About to start {total} short runs ({numbers}); each is a prompt of a line or two, at your model's price."


async def try_agent(
    found: Survey, subject: Subject, group: Sequence[RepoSettings], home: Path, state: Path
) -> AsyncIterator[CheckupLine]:
    """Its steps, then its row and its finding. ``group``: the repositories with its settings; ``state``: the
    supervisor's directory, which no agent may see."""
    async with scratch_repository(group[0]) as repo:
        settings = msgspec.structs.replace(group[0], path=str(repo), name="sample")
        roster = Roster(settings, home, state, SystemClock())
        trier = Trier(
            roster,
            subject.name,
            repo,
            hits_at_once=subject.kind == "headless",
            is_ours=subject.kind == "native",
        )
        trial = Trial(subject, trier, settings.config)
        try:
            steps = subject.turns
            async for name in trial.run():
                number = f"run {steps.index(name) + 1} of {len(steps)}"
                yield CheckupLine(step=f"{subject.name}: {number}: {STEPS[name]}")
        finally:
            await roster.close()
    row = _row(found, trial, tuple(each.name for each in group))
    yield CheckupLine(row=row)
    yield CheckupLine(finding=live_finding(row))


def _row(found: Survey, trial: Trial, repos: tuple[str, ...]) -> AgentResult:
    known = SUPPORTED.get(trial.subject.name) if trial.subject.kind in SUPPORTED else None
    return AgentResult(
        agent=trial.subject.name,
        repos=repos,
        version=found.version,
        floor=dotted(known.floor) if known else "",
        tested=dotted(known.tested) if known else "",
        model=_model(trial.config, trial.subject.name) or trial.model,
        turns=trial.trier.turns,
        cost_usd=round(trial.trier.cost_usd, 6),
        cells=tuple(trial.cells[name] for name in CAPABILITIES),
    )


def _model(config: Config, agent: str) -> str:
    section = section_of(config, agent)
    return section.model if section is not None else ""


def live_finding(row: AgentResult) -> Finding:
    """The row in one line: whether it answers, and which expected capabilities it lacks. Pure."""
    cells = cells_of(row)
    answer = cells["answer"]
    if answer.state != "yes":
        return fail("live", row.agent, answer.text)
    cost = f", ${row.cost_usd:.2f} in all" if row.cost_usd else ""
    told = f"answered {answer.text}; {_counted(row.cells)}{cost}"
    missing = [f"{cell.capability}: {cell.text}" for cell in row.cells if cell.state == "no"]
    if missing:
        return warn("live", row.agent, f"{told}; missing: {'; '.join(missing)}")
    return ok("live", row.agent, told)


def _counted(cells: Sequence[Cell]) -> str:
    tried = [cell for cell in cells if cell.state in ("yes", "no")]
    return f"{sum(cell.state == 'yes' for cell in tried)} of {len(tried)} capabilities work"
