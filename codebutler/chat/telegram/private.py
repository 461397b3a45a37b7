"""What is for one person alone: it stands in their private chat with us, where no bot may begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from codebutler.chat.layout import Section
from codebutler.chat.telegram.book import Book, kept
from codebutler.chat.telegram.buttons import HOME, Buttons
from codebutler.chat.telegram.ids import number_of
from codebutler.chat.telegram.markdown import People
from codebutler.chat.telegram.messages import Messages, Place
from codebutler.chat.telegram.render import Rendered, laid_out
from codebutler.domain.errors import ChatError, ChatUnreachableError, StoreError
from codebutler.intake.records import Notes

NOTE = "telegram.home."


class Private:
    """A HomePage: one message for each person, pinned and edited; and what is told to them alone."""

    def __init__(
        self,
        messages: Messages,
        book: Book,
        buttons: Buttons,
        notes: Notes | None,
        clean: Callable[[Rendered], Rendered],
    ) -> None:
        self._messages = messages
        self._book = book
        self._buttons = buttons
        self._notes = notes
        self._clean = clean
        self._homes: dict[str, tuple[int, ...]] = {}

    async def publish_home(self, user: str, parts: Sequence[Section]) -> None:
        """See HomePage."""
        chat = number_of(user)
        shown = self._clean(laid_out(parts, people=People(called=self._book.called)))
        try:
            numbers = list(await self._home(user))
            keyboard = await self._buttons.keyboard(chat, HOME, shown.keys)
        except StoreError as error:
            raise ChatUnreachableError(f"a home waits: {error}", "unreachable") from error
        place = Place(chat, silent=True)
        keep = partial(self._keep, user)
        try:
            await self._messages.fill(place, numbers, shown.parts, keyboard, keep)
        except ChatError as error:
            if error.code != "message_not_found":
                raise
            # Somebody took it away.
            numbers = []
            await self._messages.fill(place, numbers, shown.parts, keyboard, keep)
        await kept(self._buttons.stands(chat, HOME, HOME, numbers[-1]))

    async def reopen(self, user: str) -> None:
        """Somebody asks for it: the next one stands below all that was said. Raises StoreError."""
        numbers = await self._home(user)
        await self._keep(user, [])
        await self._messages.take_away(number_of(user), numbers)

    async def tell(self, user: str, shown: Rendered) -> int:
        """Say something to one person; returns the first message's number. Raises ChatError, not_in_channel where they
        have never opened the chat."""
        numbers: list[int] = []
        place = Place(number_of(user))
        numbers.append(await self._messages.send(place, shown.parts[0]))
        await self._messages.fill(place, numbers, shown.parts, None, _nothing, done=1)
        return numbers[0]

    async def _home(self, user: str) -> tuple[int, ...]:
        if user not in self._homes:
            noted = await self._notes.note(NOTE + user) if self._notes is not None else ""
            self._homes[user] = tuple(int(each) for each in noted.split() if each.isdecimal())
        return self._homes[user]

    async def _keep(self, user: str, numbers: list[int]) -> None:
        before, self._homes[user] = self._homes.get(user, ()), tuple(numbers)
        if self._notes is not None:
            await kept(self._notes.keep_note(NOTE + user, " ".join(map(str, numbers))))
        if numbers and not before:
            await self._messages.pin(number_of(user), numbers[0])
        for number in numbers:
            await kept(self._book.keep(number_of(user), number, lambda known: replace(known, is_ours=True)))


async def _nothing(_numbers: list[int]) -> None:
    """What is told to one person is not edited."""
