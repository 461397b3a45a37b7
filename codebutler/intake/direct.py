"""Direct messages: the repository of each of their threads, and how they are read.

The repository of a thread is on disk before the event that decides it; look-ups use memory.

A worker knows its own channel only, so everything in such a thread is known by that channel (``home``) and by
its own ref or file ID (``item``). An adapter's refs differ between the messages of a repository's channel and
of direct conversations.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence

from msgspec.structs import replace

from codebutler.config.permission import Person, Where, may
from codebutler.config.schema import Config
from codebutler.domain.commands import DIRECT, WORDS
from codebutler.domain.errors import StoreError
from codebutler.domain.message import REPO_ACTION
from codebutler.domain.model import (
    ButtonClicked,
    Command,
    Event,
    MessageDeleted,
    MessageEdited,
    MessagePosted,
    NoRequest,
    Request,
    SlashCommand,
)
from codebutler.domain.refs import NO_CHANNEL, NOWHERE, ConversationRef, MessageRef, PersonRef
from codebutler.intake.journal import Journal
from codebutler.intake.journal_file import KEPT_DIRECT
from codebutler.intake.repos import Repo
from codebutler.text.requests import request_of

_NAMED = re.compile(r"\s*([\w.-]{1,100})\s*:\s*(.*)", re.DOTALL)
_BARE = re.compile(r"\s*(\w+)\s*(?:[?!.]\s*)?")

log = logging.getLogger("codebutler.intake.direct")


class DirectThreads:
    """Where the messages of each repository are. ``load`` it before use.

    ``places``: the direct conversation that holds an item (a message's ref, a file's ID) of a repository's channel.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.places: dict[tuple[ConversationRef, str], ConversationRef] = {}
        self._homes: dict[tuple[ConversationRef, str], ConversationRef] = {}
        self._channels: dict[ConversationRef, ConversationRef] = {}

    async def load(self) -> None:
        """Read what earlier supervisors stored. Raises StoreError."""
        for home, item, channel in await self._journal.placed_direct():
            self._note(home, channel, (item,))

    @property
    def people(self) -> frozenset[PersonRef]:
        """The users whose direct conversation is known by ``meet``."""
        return frozenset(PersonRef(item) for home, item in self.places if not home)

    async def meet(self, user: PersonRef, channel: ConversationRef) -> None:
        """This is the conversation with ``user``; it has no repository yet. Raises StoreError."""
        await self.place(NO_CHANNEL, channel, (user,))

    @property
    def channels(self) -> tuple[ConversationRef, ...]:
        """Every known direct conversation."""
        return tuple(self._channels)

    def home(self, channel: ConversationRef, *items: str) -> ConversationRef:
        """The channel of the repository that one of these messages of a conversation belongs to; "" if none does."""
        found = (self._homes.get((channel, item), NO_CHANNEL) for item in items)
        return next((home for home in found if home), NO_CHANNEL)

    def latest(self, channel: ConversationRef) -> ConversationRef:
        """The channel of the repository that the conversation was last about; "" for none."""
        return self._channels.get(channel, NO_CHANNEL)

    def where(self, channel: ConversationRef, item: str) -> ConversationRef:
        """Where ``item`` of a repository's channel is: in a direct conversation, else in the channel itself."""
        return self.places.get((channel, item), channel)

    async def place(self, home: ConversationRef, channel: ConversationRef, items: Collection[str]) -> None:
        """Assign these to the repository of ``home``. Returns once that is on disk. Raises StoreError."""
        fresh = [item for item in items if self.places.get((home, item)) != channel]
        if fresh:
            await self._journal.place_direct(home, channel, fresh)
            self._note(home, channel, fresh)

    def knows(self, home: ConversationRef, channel: ConversationRef, items: Collection[str]) -> bool:
        """Whether all these items are assigned to the repository of ``home``."""
        return all(self.places.get((home, item)) == channel for item in items)

    def note(
        self, home: ConversationRef, channel: ConversationRef, items: Collection[str]
    ) -> Coroutine[object, object, None]:
        """As ``place``, but effective at once; the returned step, to be awaited or started, stores it if the disk
        can."""
        self._note(home, channel, items)
        return self._keep(home, channel, tuple(items))

    async def posted(self, channel: ConversationRef, place: ConversationRef, ref: MessageRef) -> None:
        """Our own message ``ref``, meant for ``channel``, is in ``place``."""
        await self.note(channel, place, (ref,))

    async def _keep(self, home: ConversationRef, channel: ConversationRef, items: tuple[str, ...]) -> None:
        try:
            await self._journal.place_direct(home, channel, items)
        except StoreError as error:
            log.warning("a direct message is not saved for the next start: %s", error)

    def _note(self, home: ConversationRef, channel: ConversationRef, items: Collection[str]) -> None:
        self._channels[channel] = home or self._channels.get(channel, NO_CHANNEL)
        for item in items:
            self.places[home, item] = channel
            self._homes[channel, item] = home
        while len(self.places) > KEPT_DIRECT:
            oldest, place = next(iter(self.places.items()))
            del self.places[oldest]
            self._homes.pop((place, oldest[1]), None)


def allowed(repos: Mapping[ConversationRef, Repo], user: PersonRef) -> dict[ConversationRef, Repo]:
    """Those of ``repos`` (by channel) that the user may talk to, as App Home shows them."""
    return {
        home: repo
        for home, repo in repos.items()
        if may(Person(user), "see", Where(repo.config, home)).allowed
    }


def root_of(event: Event) -> MessageRef:
    """The first message of the event's thread; "" if it has none."""
    match event:
        case MessagePosted(thread=thread, ref=ref) | MessageEdited(thread=thread, ref=ref):
            return thread or ref
        case MessageDeleted(thread=thread, ref=ref):
            return thread or ref
        case ButtonClicked(thread=thread, message=ref):
            return thread or ref
    return NOWHERE


def home_of(threads: DirectThreads, event: Event) -> ConversationRef:
    """The channel of the repository that the event's thread is about; "" until a person has said which."""
    return threads.home(event.channel, *items_of(event))


def items_of(event: Event) -> tuple[str, ...]:
    """The items a worker may name when it answers: the message, its thread, its files."""
    if isinstance(event, MessagePosted):
        return (event.root, event.ref, *(file.id for file in event.files))
    return (root,) if (root := root_of(event)) else ()


class DirectReader:
    """Reads direct messages for the intake. ``repos`` are those that are served, by channel; ``config`` is what holds
    for all of them."""

    def __init__(
        self,
        threads: DirectThreads,
        repos: Mapping[ConversationRef, Repo],
        config: Callable[[], Config] = Config,
    ) -> None:
        self._threads = threads
        self._repos = repos
        self._config = config

    def repo_of(self, event: Event) -> Repo | None:
        """The repository that the event's thread is about, None if unknown or not served."""
        return self._repos.get(home_of(self._threads, event))

    async def read(self, event: Event) -> tuple[Repo, Event, Request | None] | None:
        """(repository, event as that repository reads it, None). While its repository is unknown: one that
        decides about it, and the request to keep. None for an event to ignore.

        Raises StoreError.
        """
        repo = self.repo_of(event)
        if repo is not None and not isinstance(event, SlashCommand):
            return await self._about(repo, event)
        mine = tuple(allowed(self._repos, event.user).values())
        request = request_of(event, ())
        if isinstance(request, Command) and request.name in WORDS and WORDS[request.name].anywhere:
            return Repo("", self._config()), event, None
        if not mine:
            return Repo("", Config()), _addressed(event), None
        if isinstance(event, MessagePosted):
            return await self._first(event, mine)
        if isinstance(event, MessageEdited) and (found := named(event.text, mine)):
            await self._place(found[0], event)
            event = replace(event, text=found[1])
        if isinstance(event, ButtonClicked):
            chosen = called(event.value, mine) if event.action_id == REPO_ACTION else None
            if chosen is None:
                return None
            await self._place(chosen, event)
        return mine[0], event, request

    async def _first(
        self, event: MessagePosted, mine: Sequence[Repo]
    ) -> tuple[Repo, Event, Request | None] | None:
        """A message of a thread that has no repository yet."""
        if event.thread is None:
            event = replace(event, text=worded(event.text))
        elif (repo := called(event.text, mine)) is not None:
            await self._place(repo, event)
            return repo, replace(event, text=""), NoRequest()
        request = request_of(event, frozenset().union(*(repo.prefixes for repo in mine)))
        if isinstance(request, Command) and _is_ours(request, len(mine)):
            return mine[0], event, request
        if found := named(event.text, mine):
            return await self._about(found[0], event)
        return await self._about(mine[0], event) if len(mine) == 1 else (mine[0], event, NoRequest())

    async def _about(self, repo: Repo, event: Event) -> tuple[Repo, Event, Request | None]:
        """Everything said here is meant for us."""
        await self._place(repo, event)
        if isinstance(event, MessagePosted | MessageEdited) and (found := named(event.text, (repo,))):
            event = replace(event, text=found[1])
        return repo, _addressed(event), None

    async def _place(self, repo: Repo, event: Event) -> None:
        await self._threads.place(repo.config.channel_id, event.channel, items_of(event))


def _addressed(event: Event) -> Event:
    return replace(event, mentioned=True) if isinstance(event, MessagePosted) else event


def _is_ours(request: Command, repos: int) -> bool:
    """Commands for all repositories, and unknown ones. With one repository, its worker knows more."""
    if repos > 1 and request.name not in WORDS:
        return True
    return request.name in DIRECT and (request.name == "help" or repos > 1) and not request.argument


def worded(text: str) -> str:
    """The text, with the mark added to a command that needs none here."""
    match = _BARE.fullmatch(text)
    return f"!{match[1].lower()}" if match and match[1].lower() in DIRECT else text


def named(text: str, repos: Iterable[Repo]) -> tuple[Repo, str] | None:
    """The repository of ``name: text``, and the text; None if no repository is named.

    The name of an agent (``claude: …``) keeps that meaning.
    """
    match = _NAMED.fullmatch(text)
    if match is None:
        return None
    name = match[1].lower()
    found = [repo for repo in repos if repo.name.lower() == name and name not in repo.prefixes]
    return (found[0], match[2]) if len(found) == 1 else None


def called(text: str, repos: Iterable[Repo]) -> Repo | None:
    """The repository whose name is the whole text."""
    return next((repo for repo in repos if repo.name.lower() == text.strip().lower()), None)
