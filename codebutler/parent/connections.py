"""The chats that are connected: each lives by itself, and what ails one leaves the others at work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence

from codebutler.config.channels import ChatName, chat_of
from codebutler.config.schema import Config
from codebutler.domain.errors import ChatAuthError
from codebutler.parent.integration import Joined
from codebutler.platform.tasks import Tasks, beside
from codebutler.protocol.messages import LogTag


class Connections:
    """``run`` until ``stop``. ``allowed`` are all who may talk to us; ``named`` looks up how people are called."""

    def __init__(
        self,
        joined: Sequence[Joined],
        allowed: Callable[[], Collection[str]],
        named: Callable[[Collection[str]], None],
        record: Callable[[str, LogTag, str], None],
        tasks: Tasks,
    ) -> None:
        self._joined = joined
        self._allowed = allowed
        self._named = named
        self._record = record
        self._tasks = tasks
        self._stopped = False
        self._ended: dict[ChatName, str] = {}
        self.any_connected = asyncio.Event()

    def __iter__(self) -> Iterator[Joined]:
        return iter(self._joined)

    @property
    def names(self) -> tuple[ChatName, ...]:
        """Of the chats, in order."""
        return tuple(each.name for each in self)

    def trouble(self, joined: Joined) -> str:
        """What is wrong with a chat's connection; "" while all is well."""
        return self._ended.get(joined.name) or joined.connection.status.trouble

    async def run(self) -> None:
        """Raises ChatAuthError if every chat refuses its token at the start. With one chat alone, what it raises."""
        refused = await asyncio.gather(*map(self._live, self._joined))
        for error in refused:
            if error is not None and all(refused):
                raise error

    async def stop(self) -> None:
        """Take no more events; those being committed are finished."""
        self._stopped = True
        await asyncio.gather(*(each.connection.stop() for each in self))

    def look_again(self) -> None:
        """There are other channels now, or something may have been missed."""
        for each in self:
            each.connection.look_again()

    def meet(self) -> None:
        """Get to know whoever may talk to us by now, where we are connected. Returns at once."""
        for each in self:
            if each.connection.connected.is_set():
                self._tasks.start(self._meet(each), name=f"meeting people of {each.name}")

    def use_tokens(self, config: Config) -> None:
        """Go on with other tokens. Raises ChatAuthError for one of the wrong kind: then all stays as it was."""
        for each in self:
            each.check(config)
        for each in self:
            each.use_tokens(config)

    async def _live(self, each: Joined) -> ChatAuthError | None:
        """A connection that ended by itself (switched off, token refused) leaves the rest at work."""
        refused: ChatAuthError | None = None
        why = ""
        async with beside(self._greet(each), name=f"{each.name}'s people"):
            try:
                await each.connection.run()
                why = each.connection.status.trouble
            except ChatAuthError as error:
                refused = error
                why = f"{error}; restart the supervisor afterwards"
            except Exception as error:
                if len(self._joined) == 1:
                    raise
                why = f"an error of ours: {error!r}; restart the supervisor"
        if not self._stopped and (refused is None or len(self._joined) > 1):
            self._record("", "ERR", f"no more events from {each.name}: {why}")
            self._ended[each.name] = why
        return refused

    async def _greet(self, each: Joined) -> None:
        await each.connection.connected.wait()
        self.any_connected.set()
        self._tasks.start(self._meet(each), name=f"meeting people of {each.name}")

    async def _meet(self, each: Joined) -> None:
        """Their names, and the direct conversations with them."""
        users = sorted(user for user in self._allowed() if chat_of(user) == each.name)
        self._named(users)
        await each.meet(users)
