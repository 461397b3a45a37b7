"""Shows a program's terminal in its thread: pages that are posted once and edited while they may change.

At most one change is under way: a slow chat gets fewer edits, not a backlog.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from codebutler.config.schema import CommandRule
from codebutler.domain.errors import StoreError
from codebutler.domain.message import Message, said
from codebutler.domain.model import Value
from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler_worker.agents.backend import Finished, Output
from codebutler_worker.agents.session_logs import session_of
from codebutler_worker.present import terminal
from codebutler_worker.present.terminal import TerminalPage, TerminalPages
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork

MENTION_AFTER_S = 30.0
RETRY_S = 5.0


class PostedPage(Struct, frozen=True):
    """Where a page was posted, and its content there."""

    op_id: str
    text: str


_State = tuple[tuple[TerminalPage, ...], dict[int, PostedPage], str | None, str | None]
"""The kept pages, where they were posted, the first message, and the last edit: what a transaction changes."""


def opening(rule: CommandRule, turn_id: str) -> Message:
    """The first message of a turn that runs a program."""
    if rule.mode == "interactive":
        return terminal.running(terminal.began(rule.prefix, session_of(turn_id)), turn_id)
    return terminal.running(terminal.RUNNING, turn_id)


class TerminalDisplay:
    """One turn's terminal. ``first_op_id`` is its first message, which becomes a one-shot's first page; None:
    post that page once the program has run for a while or has ended."""

    def __init__(
        self, runtime: Runtime, place: ThreadPlace, turn_id: str, rule: CommandRule, first_op_id: str | None
    ) -> None:
        self._runtime = runtime
        self._place = place
        self._turn_id = turn_id
        self._session = session_of(turn_id)
        self._name = rule.prefix
        self._interactive = rule.mode == "interactive"
        self._first_op_id = first_op_id
        self._pages = TerminalPages(runtime.settings.config.output.max_chars_per_message, runtime.redactor)
        self._held: list[TerminalPage] = []
        # Changed within transactions only, and so in their order.
        self._posted: dict[int, PostedPage] = {}
        self._edited: str | None = None
        self._at_end: _State | None = None
        if first_op_id is not None and not self._interactive:
            self._posted[0] = PostedPage(first_op_id, "")
        self._changed = asyncio.Event()

    def take(self, output: Output) -> None:
        """The terminal shows something else now."""
        self._pages.take(output)
        self._changed.set()

    async def run(self) -> None:
        """Show what is new, until cancelled."""
        wait_s = self._runtime.settings.config.output.progress_after_seconds
        if wait_s and not self._interactive:
            await self._runtime.clock.sleep(wait_s)
            self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._gather()
            before = self._state
            try:
                last = await self._runtime.commit(self._show)
            except StoreError as error:
                self._runtime.log("WRN", f"output is waiting for the store: {error}")
                self._state = before
                await self._runtime.clock.sleep(RETRY_S)
                self._changed.set()
                continue
            if last is not None:
                await self._runtime.outbox.settled(last)

    def finish(self, uow: UnitOfWork, finished: Finished, elapsed_s: float, user: PersonRef) -> str | None:
        """Show the end, within the transaction that ends the turn; returns the last operation's ID. A failed
        transaction calls it again."""
        if self._at_end is None:
            self._gather()
            self._at_end = self._state
        self._state = self._at_end
        line = terminal.ended(finished, elapsed_s, self._session, interactive=self._interactive)
        apart = self._interactive or elapsed_s >= MENTION_AFTER_S
        silent = not any(page.lines for page in self._held) and not self._interactive
        last = self._show(uow, below=line if silent or not apart else "", over=True)
        if self._interactive and self._first_op_id is not None:
            uow.edit(self._place, self._first_op_id, said(terminal.began(self._name, self._session)))
        if apart:
            mention = user if elapsed_s >= MENTION_AFTER_S and not self._interactive else NO_PERSON
            last = uow.post(self._place, line, after=self._edited, mention=mention)
        return last

    @property
    def _state(self) -> _State:
        return tuple(self._held), dict(self._posted), self._first_op_id, self._edited

    @_state.setter
    def _state(self, state: _State) -> None:
        held, posted, self._first_op_id, self._edited = state
        self._held, self._posted = list(held), dict(posted)

    def _gather(self) -> None:
        """Runs on the loop, which owns the pages: what to show."""
        due = self._pages.due()
        known = {page.number for page in due}
        self._held = [*(page for page in self._held if page.final and page.number not in known), *due]

    def _show(self, uow: UnitOfWork, below: str = "", *, over: bool = False) -> str | None:
        """Post and edit what has changed."""
        pages, last = list(self._held), None
        for page in pages:
            newest = page.number == max(
                (each.number for each in pages if each.lines), default=pages[-1].number
            )
            note = self._pages.note if newest else ""
            op_id = self._put(uow, page, (note, below if newest else ""), over=over)
            last = op_id or last
        self._held = [page for page in self._held if page not in pages]
        return last

    def _put(self, uow: UnitOfWork, page: TerminalPage, below: tuple[str, str], *, over: bool) -> str | None:
        known = self._posted.get(page.number)
        begins = known is None and self._first_op_id is None and page.number == 0
        ours = begins or (known is not None and known.op_id == self._first_op_id)
        status = terminal.RUNNING if ours and not over and not page.final else ""
        text = terminal.shown(page, self._session, *below, status)
        if known is None and text == terminal.EMPTY:
            return None
        if known is not None and known.text == text and not (ours and over):
            op_id = None
        else:
            message = terminal.running(text, self._turn_id) if status else said(text)
            op_id = self._write(uow, known, message, over=over or page.final)
            if begins:
                self._first_op_id = op_id
                uow.turns.update(self._turn_id, progress_op_id=op_id)
            self._posted[page.number] = PostedPage(known.op_id if known else op_id or "", text)
        if page.final:
            self._posted.pop(page.number, None)
        return op_id

    def _write(
        self, uow: UnitOfWork, known: PostedPage | None, message: Message, *, over: bool
    ) -> str | None:
        # Chats edit slowly: nothing is posted before what leads to it is there.
        if known is None:
            value: Value = "answer" if over else "notice"
            return uow.post(self._place, message, after=self._edited, value=value)
        # What a page shows in the end is the answer.
        edited = uow.edit(self._place, known.op_id, message, value="answer" if over else "progress")
        self._edited = edited or self._edited
        return edited
