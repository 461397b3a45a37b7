"""ask_user: a question that the person answers with a button or in their own words."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.port import Arguments, Ask, Context, Described, Kind, Result


class AskUserArguments(Arguments, frozen=True):
    """The question."""

    question: Annotated[str, Meta(min_length=1, max_length=2000)]
    options: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...],
        Meta(max_length=10, description="Answers to choose from, if there are some."),
    ] = ()


class AskUser:
    """The answer becomes the call's result."""

    name = "ask_user"
    description = (
        "Ask the person who gave you the task, and wait for the answer. "
        "Only for what you cannot find out yourself and must know to go on."
    )
    kind: Kind = "own"
    arguments = AskUserArguments

    def describe(self, args: AskUserArguments) -> Described:
        """See the port."""
        return Described(args.question, self.name, {"question": args.question})

    async def run(self, context: Context, args: AskUserArguments) -> Result:  # noqa: ARG002 - the same everywhere
        """See the port. The effect asks; what the person answers is put in the result's place."""
        return Result("", effect=Ask(args.question, args.options))
