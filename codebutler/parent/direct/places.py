"""Which repositories somebody may talk to, and which message of a conversation an event is about. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler.config.permission import Person, Where, may
from codebutler.domain.model import ButtonClicked, Event, MessageDeleted, MessageEdited, MessagePosted
from codebutler.intake.intake import Repo
from codebutler.parent.direct.book import Book


def allowed(repos: Mapping[str, Repo], user: str) -> dict[str, Repo]:
    """Those of ``repos`` (by channel) that the user may talk to, as App Home shows them."""
    return {
        home: repo
        for home, repo in repos.items()
        if may(Person(user), "see", Where(repo.config, home)).allowed
    }


def root_of(event: Event) -> str:
    """The first message of the thread that the event belongs to; "" for what belongs to none."""
    match event:
        case MessagePosted(thread_ts=thread_ts, ts=ts) | MessageEdited(thread_ts=thread_ts, ts=ts):
            return thread_ts or ts
        case MessageDeleted(thread_ts=thread_ts, ts=ts):
            return thread_ts or ts
        case ButtonClicked(thread_ts=thread_ts, message_ts=ts):
            return thread_ts or ts
    return ""


def home_of(book: Book, event: Event) -> str:
    """The channel of the repository that the event's thread is about; "" while nobody has said which."""
    return book.home(event.channel, *items_of(event))


def items_of(event: Event) -> tuple[str, ...]:
    """What a worker may name when it answers: the message, its thread, its files."""
    if isinstance(event, MessagePosted):
        return (event.root_ts, event.ts, *(file.id for file in event.files))
    return (root,) if (root := root_of(event)) else ()
