"""A soak's outcome for people."""

from __future__ import annotations

from tests.soak.run import Outcome

SHOWN = 40


def report(outcome: Outcome) -> str:
    """The faults by kind, what the checker found, and what the supervisor needed."""
    kinds = sorted({tried.kind for tried in outcome.tried})
    lines = [f"{'fault':<30}{'tried':>8}{'survived':>10}"]
    survived = 0
    for kind in kinds:
        tried = sum(each.kind == kind for each in outcome.tried)
        survived += outcome.survived(kind)
        lines.append(f"{kind:<30}{tried:>8}{outcome.survived(kind):>10}")
    lines.append(f"{'all':<30}{len(outcome.tried):>8}{survived:>10}")
    lines.append("")
    lines.append(f"messages of people {outcome.messages} {dict(outcome.kinds)}")
    lines.append(f"runs of jobs {outcome.jobs}, messages in the workspace {outcome.in_all}")
    lines.append(f"questions answered {dict(outcome.decisions)}")
    lines.append(
        f"lost {outcome.count('lost')}, doubled {outcome.count('doubled')}, "
        f"out of order {outcome.count('disordered')}, uploads credited wrongly {outcome.count('credited')}, "
        f"processes left {len(outcome.left_behind)}"
    )
    lines += [f"  left: {process}" for process in outcome.left_behind]
    for violation in outcome.violations[:SHOWN]:
        lines.append(f"  {violation.kind}: {violation.said}: {violation.text}")
        if violation.said is not None:
            lines += [f"      {line}" for line in outcome.traces.get(violation.said.token, ())]
    lines.append(
        f"all marked {outcome.marked_s:.0f} s after the last fault, at rest after {outcome.rest_s:.0f} s"
    )
    refused = {method: f"{n} of {outcome.calls[method]}" for method, n in outcome.too_many.most_common()}
    lines.append(f"calls refused as too many: {refused or 'none'}")
    lines.append(
        f"events that Slack gave up and history brought: {outcome.events_lost}, "
        f"messages that came in after a later one: {outcome.overtaken}"
    )
    lines += [f"supervisor {n + 1:3d}: {life.told()}" for n, life in enumerate(outcome.lives)]
    lines += [f"not flat: {told}" for told in outcome.grown]
    return "\n".join(lines)
