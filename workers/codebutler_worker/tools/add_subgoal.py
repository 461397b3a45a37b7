"""add_subgoal: one more step of the plan, which people see as it goes on."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.plan import PlanStep
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Planned, Result, ToolError

MOST = 50


class AddSubgoalArguments(Arguments, frozen=True):
    """The step."""

    text: Annotated[
        str, Meta(min_length=1, max_length=300, description="What is to be achieved, in one line.")
    ]


class AddSubgoal:
    """Appends to the plan; steps are numbered from 1."""

    name = "add_subgoal"
    description = "Add a step to your plan. Plan work of several steps before you begin; people see the plan."
    kind: Kind = "own"
    arguments = AddSubgoalArguments

    def describe(self, args: AddSubgoalArguments) -> Described:
        """See the port."""
        return Described(args.text, self.name, {"text": args.text})

    async def run(self, context: Context, args: AddSubgoalArguments) -> Result:
        """See the port. Raises ToolError once the plan has all the steps it may have."""
        if len(context.plan) >= MOST:
            raise ToolError(f"the plan has {MOST} steps already: bring some of them to an end")
        steps = (*context.plan, PlanStep(" ".join(args.text.split()), "pending"))
        return Result(listed(steps), effect=Planned(steps))


def listed(steps: tuple[PlanStep, ...]) -> str:
    """The plan as the model reads it. Pure."""
    return "\n".join(f"{number}. [{step.state}] {step.text}" for number, step in enumerate(steps, 1))
