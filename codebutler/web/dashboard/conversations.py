"""Conversations on the dashboard: a thread's transcript, and search. The workers provide both; nothing is stored
here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from uuid import uuid4

from msgspec import Struct

from codebutler.domain.errors import CodeButlerError
from codebutler.intake.repos import Served
from codebutler.protocol.conversations import (
    AskedTold,
    AskFound,
    AskThread,
    FoundRun,
    FoundTold,
    RunTold,
    ThreadTold,
)
from codebutler.supervisor.workers import Workers
from codebutler.text.markup import Addresses
from codebutler.text.wording import amount
from codebutler.web.dashboard.changes import UNKNOWN_REPO
from codebutler.web.dashboard.runs import AskedView, Piece, asked_view, excerpt, page_path, pieces

AT_ONCE = 4
"""How many workers are searched at once: each may have to be woken."""
MAX_HITS = 50
SEARCH_S = 60.0
TOO_SLOW = "its worker did not answer in time"
WHOLE_CHARS = 40_000
NO_WORDS = "enter words to search for"
_FENCE = re.compile(r"^```[^\n`]*\n(.*?)\n?^```[ \t]*$", re.DOTALL | re.MULTILINE)
_LAST_CLOSING = re.compile(r".*^```[ \t]*$", re.DOTALL | re.MULTILINE)


class MessageView(Struct, frozen=True, kw_only=True):
    """A person's message."""

    who: str
    at: str
    text: tuple[Piece, ...]


class RunView(Struct, frozen=True, kw_only=True):
    """A run of the thread; ``changes`` is the page of its changes, "" if none."""

    id: str
    state: str
    agent: str
    at: str
    cost: str
    said: tuple[MessageView, ...]
    decided: tuple[str, ...]
    answer: tuple[Piece, ...]
    is_cut: bool
    changes: str


class ThreadView(Struct, frozen=True, kw_only=True):
    """A conversation, oldest run first, and what the run in question waits for. ``url`` is the thread's in its
    chat, "" if it has none."""

    repo: str
    title: str
    url: str
    runs: tuple[RunView, ...]
    has_more: bool
    asked: tuple[AskedView, ...]


class HitView(Struct, frozen=True, kw_only=True):
    """A conversation that was found: ``page`` is its transcript, ``url`` its thread."""

    repo: str
    title: str
    text: tuple[Piece, ...]
    agent: str
    at: str
    page: str
    url: str


class FoundView(Struct, frozen=True, kw_only=True):
    """What was found, and why some repositories could not be searched."""

    hits: tuple[HitView, ...]
    missed: tuple[str, ...]


class Conversations(Struct, frozen=True, kw_only=True):
    """Asks the workers. ``served`` are all repositories; ``name_people`` replaces people's IDs in a text by their
    names; ``search_s``: how long a search waits for all workers together."""

    served: Callable[[], Sequence[Served]]
    workers: Workers
    name_people: Callable[[str], str]
    redact: Callable[[str], str]
    addresses: Callable[[], Awaitable[Addresses]]
    search_s: float = SEARCH_S

    async def thread(self, repo: str, run: str) -> ThreadView:
        """The conversation of that run. Raises CodeButlerError with one line that says why there is none."""
        (served,) = self._select(repo) if repo else ()
        answer = await self.workers.ask(repo, AskThread(request_id=uuid4().hex, turn=run), ThreadTold)
        if answer.problem:
            raise CodeButlerError(answer.problem)
        url = (await self.addresses())(served.channel_id, answer.thread) if answer.thread else ""
        # Searching a long thread for secrets takes a while.
        return await asyncio.to_thread(self._thread, repo, answer, url)

    async def find(self, words: str, repo: str = "") -> FoundView:
        """The conversations that have all these words, in one repository or in all. Wakes the workers that sleep.
        Raises CodeButlerError."""
        if not words.strip():
            raise CodeButlerError(NO_WORDS)
        chosen, slots = self._select(repo), asyncio.Semaphore(AT_ONCE)

        async def search(served: Served) -> FoundTold:
            async with slots:
                question = AskFound(request_id=uuid4().hex, words=words)
                return await self.workers.ask(served.entry.name, question, FoundTold)

        asking = [asyncio.create_task(search(served)) for served in chosen]
        try:
            if asking:
                await asyncio.wait(asking, timeout=self.search_s)
        finally:
            for task in asking:
                task.cancel()
            answers = await asyncio.gather(*asking, return_exceptions=True)
        address = await self.addresses()
        hits: list[list[HitView]] = []
        missed: list[str] = []
        for served, answer in zip(chosen, answers, strict=True):
            match answer:
                case FoundTold(problem="", runs=runs):
                    hits.append([self._hit(served, run, address) for run in runs])
                case FoundTold(problem=why) | CodeButlerError(args=(why, *_)):
                    missed.append(f"{served.entry.name}: {self.redact(str(why))}")
                case asyncio.CancelledError():
                    missed.append(f"{served.entry.name}: {TOO_SLOW}")
                case BaseException():
                    raise answer
        return FoundView(hits=tuple(_interleaved(hits))[:MAX_HITS], missed=tuple(missed))

    def _select(self, repo: str) -> Sequence[Served]:
        chosen = [served for served in self.served() if repo in ("", served.entry.name)]
        if repo and not chosen:
            raise CodeButlerError(UNKNOWN_REPO)
        return chosen

    def _hit(self, served: Served, run: FoundRun, address: Addresses) -> HitView:
        redact = self.redact
        return HitView(
            repo=served.entry.name,
            title=redact(excerpt(run.title)),
            text=pieces(redact(run.text)),
            agent=run.agent,
            at=run.at,
            page=page_path("thread", served.entry.name, run.id),
            url=address(served.channel_id, run.thread) if run.thread else "",
        )

    def _thread(self, repo: str, answer: ThreadTold, url: str) -> ThreadView:
        first = next((said.text for run in answer.runs for said in run.said), "")
        return ThreadView(
            repo=repo,
            title=self.redact(excerpt(first)),
            url=url,
            runs=tuple(self._run(repo, run) for run in answer.runs),
            has_more=answer.has_more,
            asked=tuple(self._asked_view(each, at) for at, each in enumerate(answer.asked)),
        )

    def _asked_view(self, answer: AskedTold, at: int) -> AskedView:
        fits = len(answer.asked.text) <= WHOLE_CHARS
        text = self.redact(answer.asked.text) if fits else ""
        shown = foreign_pieces(text) if answer.is_foreign else pieces(text)
        return asked_view(answer.asked, shown, first=at == 0)

    def _run(self, repo: str, run: RunTold) -> RunView:
        clean, name_people = self.redact, self.name_people
        return RunView(
            id=run.id,
            state=run.state,
            agent=run.agent,
            at=run.at,
            cost="" if run.cost_usd is None else amount("usd", run.cost_usd),
            said=tuple(
                MessageView(who=name_people(said.user), at=said.at, text=foreign_pieces(clean(said.text)))
                for said in run.said
            ),
            decided=tuple(name_people(clean(line)) for line in run.decided),
            answer=foreign_pieces(clean(run.answer)),
            is_cut=run.is_cut,
            changes=page_path("changes", repo, run.id) if run.changed else "",
        )


def foreign_pieces(markdown: str) -> tuple[Piece, ...]:
    """Somebody's Markdown: its code blocks, and the rest as it was written."""
    # Searching for the end of a fence that none has takes time, again for each line that begins one.
    closing = _LAST_CLOSING.match(markdown)
    end = closing.end() if closing else 0
    # Splitting by a pattern with one group gives text and code in turn.
    parts = _FENCE.split(markdown[:end])
    parts[-1] += markdown[end:]
    found = [
        Piece("block", part) if at % 2 else Piece("text", part.strip("\n")) for at, part in enumerate(parts)
    ]
    return tuple(piece for piece in found if piece.kind == "block" or piece.text)


def _interleaved(hits: Sequence[Sequence[HitView]]) -> Iterator[HitView]:
    """The best of each repository first, then the second best: scores of two indexes do not compare."""
    for place in range(max(map(len, hits), default=0)):
        yield from (each[place] for each in hits if place < len(each))
