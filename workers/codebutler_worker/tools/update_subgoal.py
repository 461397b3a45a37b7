"""update_subgoal: how far a step of the plan is."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from codebutler_worker.tools.add_subgoal import listed
from codebutler_worker.tools.plan import PlanStep
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Planned, Result, ToolError


class UpdateSubgoalArguments(Arguments, frozen=True):
    """Which step, and what it is now."""

    number: Annotated[int, Meta(ge=1, description="The step's number in the plan, from 1.")]
    state: Literal["pending", "in_progress", "done"]
    text: Annotated[str, Meta(max_length=300, description="Other words for the step, if they changed.")] = ""


class UpdateSubgoal:
    """Replaces one step of the plan."""

    name = "update_subgoal"
    description = (
        "Say how far a step of your plan is: in_progress when you begin it, done when it is achieved."
    )
    kind: Kind = "own"
    arguments = UpdateSubgoalArguments

    def describe(self, args: UpdateSubgoalArguments) -> Described:
        """See the port."""
        return Described(
            f"{args.number} {args.state}", self.name, {"number": args.number, "state": args.state}
        )

    async def run(self, context: Context, args: UpdateSubgoalArguments) -> Result:
        """See the port. Raises ToolError for a number that the plan does not have."""
        steps = list(context.plan)
        if args.number > len(steps):
            raise ToolError(f"the plan has {len(steps)} steps: add_subgoal adds one")
        text = " ".join(args.text.split()) or steps[args.number - 1].text
        steps[args.number - 1] = PlanStep(text, args.state)
        return Result(listed(tuple(steps)), effect=Planned(tuple(steps)))
