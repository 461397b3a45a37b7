"""Routes direct messages to their repository, and answers those without one.

A message that waits for a person to choose its repository stays in the journal: a restart loses nothing, and
finds a question that was already asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.chat.chats import Chats
from codebutler.config.permission import decide_request
from codebutler.domain.clock import Clock
from codebutler.domain.command_help import nearest
from codebutler.domain.commands import DIRECT, SLASH, WORDS
from codebutler.domain.errors import ChatError, ChatUnreachableError
from codebutler.domain.message import REPO_ACTION, Button, said
from codebutler.domain.model import (
    ButtonClicked,
    Command,
    MessageEdited,
    MessagePosted,
    NoRequest,
    Operation,
    Post,
    SlashCommand,
    Update,
)
from codebutler.domain.refs import NO_PERSON, NOWHERE, ConversationRef, MessageRef, PersonRef
from codebutler.intake.direct import DirectThreads, allowed, home_of, items_of, root_of
from codebutler.intake.dispatcher import GoOn
from codebutler.intake.intake import Refusals
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.intake.repos import Repo
from codebutler.parent.apphome_page import RepoCard
from codebutler.parent.commands.asked import AskedDirectly, direct_answer
from codebutler.platform.tasks import Tasks
from codebutler.text.markup import code, plain
from codebutler.text.requests import request_of

PATIENCE = timedelta(days=7)
"""How long a question stays open."""
MAX_BUTTONS = 20

log = logging.getLogger("codebutler.parent.direct")

Thread = tuple[ConversationRef, MessageRef]


class DirectSources(Struct, frozen=True):
    """Look-ups: threads, the served repositories by channel, what a person may see of them, and why a worker
    stays down ("" if it does not); and where refusals are recorded."""

    threads: DirectThreads
    repos: Mapping[ConversationRef, Repo]
    cards: Callable[[PersonRef], Sequence[RepoCard] | None]
    down: Callable[[str], str]
    refusals: Refusals


class DirectMessages:
    """A step of the dispatcher: later steps see a direct message as one of its repository's channel."""

    def __init__(
        self, sources: DirectSources, chats: Chats, journal: Journal, tasks: Tasks, clock: Clock
    ) -> None:
        self._sources = sources
        self._chats = chats
        self._journal = journal
        self._tasks = tasks
        self._clock = clock
        self._since = clock.now()
        self._waiting: dict[Thread, list[Entry]] = {}
        self._cards: dict[Thread, MessageRef] = {}

    def take(self, entry: Entry, go_on: GoOn) -> None:
        """Keeps an entry of a thread without a repository until the person has chosen one."""
        if entry.channel in self._sources.repos:
            go_on(entry)
            return
        event = entry.event
        thread = (entry.channel, root_of(event))
        home = home_of(self._sources.threads, event)
        repo = self._sources.repos.get(home)
        word = WORDS.get(entry.request.name) if isinstance(entry.request, Command) else None
        if word is not None and word.anywhere:
            go_on(entry)
        elif isinstance(event, SlashCommand) or (repo is None and isinstance(entry.request, Command)):
            self._start(self._answer(entry), entry)
        elif repo is None:
            self._keep(thread, entry)
        else:
            waiting = self._waiting.pop(thread, [])
            if waiting and not _is_choice(entry):
                self._tasks.start(self._show_choice(thread, repo), name=f"choice of {event.user}")
            for each in [*waiting, entry]:
                self._place(each, home)
                self._hand_on(each, home, repo, go_on)

    def _place(self, entry: Entry, home: ConversationRef) -> None:
        """Assign an entry that waited: its repository was unknown when it came."""
        threads, items = self._sources.threads, items_of(entry.event)
        if not threads.knows(home, entry.channel, items):
            self._tasks.start(threads.note(home, entry.channel, items), name=f"place of {entry.event.key}")

    def _hand_on(self, entry: Entry, home: ConversationRef, repo: Repo, go_on: GoOn) -> None:
        if _is_choice(entry):
            self._start(self._close(entry, repo), entry)
            return
        event, request = msgspec.structs.replace(entry.event, channel=home), entry.request
        if isinstance(event, MessagePosted | MessageEdited):
            # A waiting entry was not checked against a repository, nor read for its agents' prefixes.
            request = request_of(event, repo.prefixes)
            decision = decide_request(repo.config, event, request)
            if not decision.allowed:
                self._sources.refusals.refused(entry.event, request, decision, tell=True)
                self._forget(entry)
                return
            if isinstance(entry.request, NoRequest) and isinstance(request, Command):
                self._sources.refusals.commanded(entry.event, request)
        if isinstance(event, MessagePosted) and self._sources.down(repo.name):
            self._tasks.start(self._say_down(entry, repo), name=f"bad news for {event.user}")
        go_on(replace(entry, channel=home, event=event, request=request))

    def _keep(self, thread: Thread, entry: Entry) -> None:
        """Ask for the repository of a thread that has none."""
        waiting = self._waiting.get(thread)
        is_stale = self._clock.now() - entry.received_at > PATIENCE
        if waiting is not None:
            waiting.append(entry)
        elif isinstance(entry.event, MessagePosted) and not is_stale:
            self._waiting[thread] = [entry]
            self._tasks.start(self._ask(thread, entry), name=f"question to {entry.event.user}")
        else:
            self._forget(entry)

    async def _ask(self, thread: Thread, entry: Entry) -> None:
        mine = allowed(self._sources.repos, entry.event.user)
        latest = self._sources.threads.latest(entry.channel)
        # The last choice is likely to be the next.
        names = [mine[home].name for home in sorted(mine, key=lambda home: (home != latest, mine[home].name))]
        if names:
            self._cards[thread] = await self._say(entry, question(names, thread[1]))

    async def _close(self, entry: Entry, repo: Repo) -> None:
        """The question is answered, by a button or by a name alone."""
        event = entry.event
        card = event.message if isinstance(event, ButtonClicked) else NOWHERE
        await self._show_choice((entry.channel, root_of(event)), repo, card)

    async def _show_choice(self, thread: Thread, repo: Repo, card: MessageRef = NOWHERE) -> None:
        """On its card, if this process knows it."""
        channel, root = thread
        if card := card or self._cards.pop(thread, NOWHERE):
            operation = chosen(card, repo.name)
            with suppress(ChatError):  # the choice holds even if its card cannot show it
                await self._chats.submit(channel, f"direct-chosen-{channel}-{root}", operation)

    async def _say_down(self, entry: Entry, repo: Repo) -> None:
        """Its channel was notified, but the author may be unable to read that. Once per thread."""
        root = root_of(entry.event)
        post = Post(message=said(down(repo.name)), thread=root)
        with suppress(ChatError):
            await self._chats.submit(entry.channel, f"direct-down-{entry.channel}-{root}", post, unsure=True)

    async def _answer(self, entry: Entry) -> None:
        event, request = entry.event, entry.request
        name = request.name if isinstance(request, Command) else ""
        if name in DIRECT:
            repos, cards = allowed(self._sources.repos, event.user), self._sources.cards(event.user) or ()
            text = direct_answer(name, AskedDirectly(repos, cards, self._clock.now()))
        elif name in WORDS or isinstance(event, SlashCommand):
            text = no_slash()
        else:
            text = unknown(name)
        only_for = event.user if isinstance(event, SlashCommand) else NO_PERSON
        await self._say(entry, Post(message=said(text), thread=root_of(event) or None, only_for=only_for))

    async def _say(self, entry: Entry, operation: Operation) -> MessageRef:
        op_id = f"direct-{entry.event.key}"
        unsure = entry.received_at < self._since
        return await self._chats.submit(entry.channel, op_id, operation, unsure=unsure)

    def _start(self, work: Coroutine[Any, Any, None], entry: Entry) -> None:
        """Do it in the background, then forget the entry."""
        self._tasks.start(self._settled(work, entry), name=f"answer to {entry.event.key}")

    def _forget(self, entry: Entry) -> None:
        self._tasks.start(self._journal.settle(entry.seq), name=f"end of {entry.event.key}")

    async def _settled(self, work: Coroutine[Any, Any, None], entry: Entry) -> None:
        try:
            await work
        except ChatUnreachableError as error:
            # The chats are closing. The entry stays: it is answered after the next start.
            log.warning("a direct message is not answered yet: %s", error)
            return
        except ChatError as error:
            log.warning("could not answer a direct message: %s", error)
        await self._journal.settle(entry.seq)


def _is_choice(entry: Entry) -> bool:
    """Whether it only named a repository."""
    event = entry.event
    if isinstance(event, MessagePosted):
        return isinstance(entry.request, NoRequest) and not event.text.strip() and not event.files
    return isinstance(event, ButtonClicked) and event.action_id == REPO_ACTION


def question(names: Sequence[str], thread: MessageRef) -> Post:
    """Asks for the repository: a button for each, and how to name it directly."""
    example = code(f"{names[0]}: …")
    text = f"Which repository is this about? Next time you can begin with its name: {example}"
    more = len(names) - MAX_BUTTONS
    if more > 0:
        text += f" (and {more} more, by name)"
    buttons = (Button(name, REPO_ACTION, name) for name in names[:MAX_BUTTONS])
    return Post(message=said(text, *buttons), thread=thread)


def chosen(card: MessageRef, name: str) -> Update:
    """The answered question."""
    return Update(
        target=card, message=said(f"Repository: **{plain(name)}**. Everything in this thread goes there.")
    )


def down(name: str) -> str:
    """The answer for a repository whose worker keeps failing."""
    return (
        f"⚠️ **{plain(name)}** cannot answer now, because its worker keeps failing: see `codebutler logs` on its "
        "machine. Your messages are kept and answered later."
    )


def unknown(name: str) -> str:
    """The answer to a command that does not exist."""
    near = nearest(name)
    hint = f" Did you mean `!{near}`?" if near else " `help` lists the commands."
    return f"Unknown command {code(f'!{name[:40]}')}.{hint}"


def no_slash() -> str:
    """The answer to a slash command that needs one repository."""
    return (
        f"Here `{SLASH}` supports {', '.join(f'`{name}`' for name in DIRECT)}. For one repository write `!word` as a "
        f"message, or `{SLASH} word` in its channel."
    )
