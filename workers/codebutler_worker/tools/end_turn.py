"""end_turn: the model says that it is done, or that it cannot go on alone."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.port import Arguments, Context, Described, End, Kind, Result


class EndTurnArguments(Arguments, frozen=True):
    """The last words."""

    answer: Annotated[
        str, Meta(min_length=1, description="What the person reads: what was done, what is open.")
    ]
    needs_user: Annotated[bool, Meta(description="You cannot go on without the person.")] = False


class EndTurn:
    """Its answer is the turn's."""

    name = "end_turn"
    description = (
        "End your work with an answer for the person (Markdown). Only when all of it is done, "
        "or when you cannot go on without them."
    )
    kind: Kind = "own"
    arguments = EndTurnArguments

    def describe(self, args: EndTurnArguments) -> Described:
        """See the port."""
        return Described("", self.name, {"needs_user": args.needs_user})

    async def run(self, context: Context, args: EndTurnArguments) -> Result:  # noqa: ARG002 - the same everywhere
        """See the port."""
        return Result("The turn is over.", effect=End(args.answer, args.needs_user))
