"""A run's changes for their page, and a person's review comments as one message. A worker's answer is untrusted text,
as is every file: it is bounded here, and the page never treats it as markup."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Annotated, Literal
from uuid import uuid4

from msgspec import Meta, Struct

from codebutler.chat.terminal import Speaker
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import MessageRef
from codebutler.intake.repos import Served
from codebutler.protocol.conversations import AskDiff, ChangedFile, RunChanges
from codebutler.supervisor.workers import Workers
from codebutler.text.markup import Addresses
from codebutler.text.redact import redacted_diff

LINE_CHARS = 1000
MAX_LINES = 20_000
QUOTE_LINES = 6
QUOTE_CHARS = 160
MESSAGE_CHARS = 12_000
TOO_LONG = f"the comments are longer than {MESSAGE_CHARS} characters together: send some of them first"
NO_COMMENTS = "there are no comments to send"
FIRST_LINE = "Comments on your changes:"
"""Neither a command nor an agent's prefix: what follows is always text for the thread's agent."""

_BIDI_CONTROLS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that reorder displayed text: they could make code look like other code."""

Shown = Literal["lines", "binary", "long", "empty"]
UNKNOWN_REPO = "no repository with that name is served"


class DiffLineView(Struct, frozen=True, array_like=True):
    """A line: "+", "-" or " ", its old and new number (0 = not there), and its text."""

    sign: str
    old: int
    new: int
    text: str


class HunkView(Struct, frozen=True, kw_only=True):
    """Consecutive lines; ``title`` is the context that git names."""

    title: str
    lines: tuple[DiffLineView, ...]


class FileView(Struct, frozen=True, kw_only=True):
    """A file; ``shown``: its lines, or why they are missing."""

    path: str
    old: str
    added: int | None
    removed: int | None
    shown: Shown
    hunks: tuple[HunkView, ...] = ()


class ChangesView(Struct, frozen=True, kw_only=True):
    """The page. ``url`` is the thread's, "" if its chat has none; ``is_cut``: some lines are left out."""

    repo: str
    task: str
    agent: str
    at: str
    thread: str
    url: str
    files: tuple[FileView, ...]
    more: int
    commits: tuple[str, ...]
    is_cut: bool


class LineComment(Struct, frozen=True, kw_only=True):
    """A comment: the file, its first and last line (0 = the whole file; "old": by their numbers before the change),
    the text of the lines, and the comment itself."""

    path: Annotated[str, Meta(max_length=1000)]
    first: Annotated[int, Meta(ge=0)]
    last: Annotated[int, Meta(ge=0)]
    text: Annotated[str, Meta(min_length=1, max_length=MESSAGE_CHARS)]
    side: Literal["old", "new"] = "new"
    quote: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()


class Comments(Struct, frozen=True, kw_only=True):
    """A review of a run in a repository, sent to its thread ("": to the channel)."""

    repo: str
    thread: Annotated[str, Meta(max_length=100)]
    comments: Annotated[tuple[LineComment, ...], Meta(max_length=200)]


def changes_view(repo: str, answer: RunChanges, url: str, redact: Callable[[str], str]) -> ChangesView:
    """The page for a worker's answer about a run whose thread is at ``url``."""
    parts = iter(
        list(_split_files(redacted_diff(answer.body.decode("utf-8", "replace"), redact).split("\n")))
    )
    budget = _LineBudget()
    return ChangesView(
        repo=repo,
        task=redact(answer.task),
        agent=answer.agent,
        at=answer.at,
        thread=answer.thread,
        url=url,
        files=tuple(_file(file, parts, budget, redact) for file in answer.files),
        more=answer.more,
        commits=tuple(map(redact, answer.commits)),
        is_cut=answer.is_cut or budget.is_spent,
    )


class _LineBudget:
    def __init__(self) -> None:
        self._remaining = MAX_LINES
        self.is_spent = False

    def take(self) -> bool:
        """Whether another line fits."""
        self._remaining -= 1
        self.is_spent = self.is_spent or self._remaining < 0
        return self._remaining >= 0


def _file(
    file: ChangedFile, parts: Iterator[list[str]], budget: _LineBudget, redact: Callable[[str], str]
) -> FileView:
    """git prints the files in the order in which the worker lists them."""
    shown: Shown = "binary" if file.added is None else "long"
    hunks: tuple[HunkView, ...] = ()
    if file.is_shown:
        hunks = tuple(_hunks(next(parts, []), budget))
        shown = "lines" if hunks else "empty"
    return FileView(
        path=redact(file.path),
        old=redact(file.old),
        added=file.added,
        removed=file.removed,
        shown=shown,
        hunks=hunks,
    )


def _split_files(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each file. A file's lines all start with a sign, so none can look like the start of a file."""
    part: list[str] | None = None
    for line in lines:
        if line.startswith("diff --git "):
            if part is not None:
                yield part
            part = []
        elif part is not None:
            part.append(line)
    if part is not None:
        yield part


def _hunks(lines: Sequence[str], budget: _LineBudget) -> Iterator[HunkView]:
    title, shown = "", list[DiffLineView]()
    old = new = 0
    is_within = False
    for line in lines:
        if line.startswith("@@ "):
            if shown:
                yield HunkView(title=title, lines=tuple(shown))
            old, new, title = _hunk_header(line)
            is_within, shown = True, []
        elif is_within and line[:1] in ("+", "-", " ") and budget.take():
            sign = line[:1]
            shown.append(
                DiffLineView(sign, old if sign != "+" else 0, new if sign != "-" else 0, _visible(line[1:]))
            )
            old, new = old + (sign != "+"), new + (sign != "-")
    if shown:
        yield HunkView(title=title, lines=tuple(shown))


def _hunk_header(line: str) -> tuple[int, int, str]:
    """The old and new start of a hunk, and its title, from ``@@ -1,2 +3,4 @@ title``."""
    ranges, _, title = line[3:].partition(" @@")
    old, _, new = ranges.partition(" ")
    return _start(old), _start(new), _clip(_visible(title.strip()), QUOTE_CHARS)


def _start(text: str) -> int:
    digits = text[1:].partition(",")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else 0


def _visible(text: str) -> str:
    """A line with its deceptive characters made visible."""
    return _BIDI_CONTROLS.sub(lambda found: f"⟦U+{ord(found[0]):04X}⟧", _clip(text, LINE_CHARS))


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def review_message(comments: Sequence[LineComment]) -> str:
    """All comments as one message: place, lines, text. Raises CodeButlerError if it is too long or empty."""
    written = [each for each in comments if each.text.strip()]
    if not written:
        raise CodeButlerError(NO_COMMENTS)
    message = "\n\n".join([FIRST_LINE, *map(_comment_text, written)])
    if len(message) > MESSAGE_CHARS:
        raise CodeButlerError(TOO_LONG)
    return message


def _comment_text(comment: LineComment) -> str:
    lines = str(comment.first) if comment.first == comment.last else f"{comment.first}-{comment.last}"
    place = f"{_one_line(comment.path)}:{lines}" if comment.first else _one_line(comment.path)
    where = f"{place} (before the change)" if comment.side == "old" else place
    quote = [f"> {_clip(_one_line(line), QUOTE_CHARS)}" for line in comment.quote[:QUOTE_LINES]]
    quote += ["> …"] if len(comment.quote) > QUOTE_LINES else []
    return "\n".join([where, *quote, comment.text.strip()])


def _one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)


class ChangeReviews(Struct, frozen=True, kw_only=True):
    """Every page is fetched anew: nothing is stored. ``find_repo`` finds a repository by name; ``workers`` answer
    questions about a run; ``redact`` removes secrets; ``addresses`` finds where people see messages."""

    find_repo: Callable[[str], Served | None]
    workers: Workers
    speaker: Speaker
    redact: Callable[[str], str]
    addresses: Callable[[], Awaitable[Addresses]]

    async def view(self, repo: str, run: str) -> ChangesView:
        """What the run changed. Raises CodeButlerError with one line that says why that is unknown."""
        served = self._served(repo)
        answer = await self.workers.ask(repo, AskDiff(request_id=uuid4().hex, turn=run), RunChanges)
        if answer.problem:
            raise CodeButlerError(self.redact(answer.problem))
        url = (await self.addresses())(served.channel_id, answer.thread) if answer.thread else ""
        # Searching a long diff for secrets takes a while.
        return await asyncio.to_thread(changes_view, repo, answer, url, self.redact)

    async def send(self, review: Comments) -> None:
        """Post the comments in the run's thread. Raises CodeButlerError with one line that says why it failed."""
        served, speaker = self._served(review.repo), self.speaker
        thread = MessageRef(review.thread) or None
        text = review_message(review.comments)
        ref = await speaker.post(served, text, thread)
        await speaker.said(served, ref, text, thread)
        speaker.check_up(served)

    def _served(self, name: str) -> Served:
        if (served := self.find_repo(name)) is None:
            raise CodeButlerError(UNKNOWN_REPO)
        return served
