"""web_search: pages of the web that fit some words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta

from codebutler.domain.errors import CodeButlerError
from codebutler.text.redact import Redactor
from codebutler_worker.internet.search import WebSearch as Service
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Result, ToolError
from codebutler_worker.tools.web_fetch import FOREIGN, refuse_secrets


class WebSearchArguments(Arguments, frozen=True):
    """What to look for."""

    query: Annotated[str, Meta(min_length=1, max_length=400, description="What to look for, in a few words.")]
    depth: Annotated[
        Literal["basic", "advanced"],
        Meta(description="advanced finds more, takes longer and costs twice as much."),
    ] = "basic"
    most: Annotated[int, Meta(ge=1, le=10, description="At most so many pages.")] = 5


class WebSearch:
    """Asks the search service; fetches no page itself."""

    name = "web_search"
    description = "Search the web: titles, addresses and excerpts of pages. Read a page with web_fetch."
    kind: Kind = "web"
    arguments = WebSearchArguments

    def __init__(self, service: Service, secrets: Iterable[str] = ()) -> None:
        self._service = service
        self._redactor = Redactor(secrets)

    def describe(self, args: WebSearchArguments) -> Described:
        """See the port."""
        return Described(args.query, "WebSearch", {"query": args.query, "depth": args.depth})

    async def run(self, context: Context, args: WebSearchArguments) -> Result:  # noqa: ARG002 - the same everywhere
        """See the port. Raises ToolError for words that hold a secret, and where the service does not answer."""
        refuse_secrets(args.query, self._redactor)
        try:
            hits = await self._service.search(args.query, args.depth, args.most)
        except CodeButlerError as error:
            raise ToolError(str(error)) from error
        if not hits:
            return Result("Nothing was found.")
        found = [f"{at}. {hit.title}\n{hit.url}\n{hit.content}" for at, hit in enumerate(hits, 1)]
        return Result("\n\n".join([FOREIGN.replace("a page", "from pages"), *found]))
