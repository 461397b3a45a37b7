"""propose_plan: in plan mode, the way from looking to doing."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Propose, Result


class ProposePlanArguments(Arguments, frozen=True):
    """The plan."""

    plan: Annotated[str, Meta(min_length=1, max_length=20_000, description="What you would do, as Markdown.")]


class ProposePlan:
    """Offered where nothing may be changed before somebody has agreed to a plan."""

    name = "propose_plan"
    description = (
        "You may only look until the person has agreed to a plan. Look around, then propose it here: "
        "which files, what changes, how it is checked."
    )
    kind: Kind = "own"
    arguments = ProposePlanArguments

    def describe(self, args: ProposePlanArguments) -> Described:
        """See the port."""
        return Described("a plan", "ExitPlanMode", {"plan": args.plan})

    async def run(self, context: Context, args: ProposePlanArguments) -> Result:  # noqa: ARG002 - the same everywhere
        """See the port. The effect shows the plan; what the person decides is put in the result's place."""
        return Result("", effect=Propose(args.plan))
