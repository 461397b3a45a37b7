"""The interface of a chat platform: what it offers the rest of the product, and what it is given to work with; and the
one list of the platforms. A platform's modules are imported when it is asked for: a supervisor pays only for the chats
it uses."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef

if TYPE_CHECKING:
    from codebutler.chat.chats import ChatConnection
    from codebutler.chat.delivery.sender import Sender
    from codebutler.chat.people import Person
    from codebutler.chat.port import EnteredChat
    from codebutler.config.chats import ChatName, ChatSection
    from codebutler.config.schema import Config
    from codebutler.domain.clock import Clock
    from codebutler.intake.direct import DirectThreads
    from codebutler.intake.dispatcher import Dispatcher
    from codebutler.intake.intake import Intake
    from codebutler.intake.journal import Journal
    from codebutler.intake.records import Notes
    from codebutler.intake.repos import Repo, RepoTable
    from codebutler.platform.tasks import Observers, Tasks
    from codebutler.protocol.messages import Finding


T = TypeVar("T")
Given = Mapping[str, Any]
"""The given options: each key with a text, or a list of texts if it may be repeated."""


class BadOptionError(CodeButlerError):
    """A command's option cannot be used as given."""

    def __init__(self, message: str, flag: str = "") -> None:
        super().__init__(message)
        self.flag = flag


@dataclass(frozen=True, kw_only=True)
class Option:
    """A command's option for a chat. ``key``: the name of its value; in a setup, the dotted configuration key.
    ``many``: it may be repeated."""

    flag: str
    key: str
    help: str
    metavar: str | None = None
    many: bool = False


class Prompter(Protocol):
    """The person at the terminal. Ask questions only if somebody is there (``is_interactive``)."""

    @property
    def is_interactive(self) -> bool:
        """Whether somebody can answer."""

    def tell(self, line: str, /) -> None:
        """Print a line beside the command's output."""

    def warn(self, line: str, /) -> None:
        """Print a warning; the command continues."""

    async def ask(self, question: str, default: str = "") -> str:
        """Read a line, ``default`` if it is empty. Raises EOFError when the input ends."""

    async def ask_secret(self, question: str) -> str:
        """Read a line without showing it. Raises EOFError when the input ends."""

    async def until(self, other: Coroutine[Any, Any, T] | None, question: str) -> str | T:
        """Read a line, or return the result of ``other``, whichever comes first. Raises EOFError when the input
        ends."""


class Unattended:
    """A Prompter without a person: every question raises EOFError. ``tell`` and ``warn`` get the lines."""

    is_interactive = False

    def __init__(self, tell: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self.tell = tell
        self.warn = warn

    async def ask(self, *_: object) -> str:
        """There is nobody to ask."""
        raise EOFError

    ask_secret = until = ask


@dataclass(frozen=True, kw_only=True)
class SetUp:
    """Sets up a chat. ``save`` writes dotted keys to the home's file, all or none, and raises ConfigError for an
    invalid value; ``check`` only raises."""

    config: Config
    given: Given
    save: Callable[[Given], None]
    check: Callable[[Given], None]
    prompter: Prompter


@dataclass(frozen=True, kw_only=True)
class PlaceWish:
    """A request for a repository's place. ``present``: the ID of its current place, "" if none; ``check`` is given
    the ID of an existing place before it is touched, and may raise. ``made_since``: an interrupted attempt may have
    made the place since this Unix time; 0 = there was none."""

    config: Config
    given: Given
    repo: str
    present: ConversationRef
    check: Callable[[ConversationRef], object]
    prompter: Prompter
    made_since: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RepoPlace:
    """A repository's place: its ID in the registry and its display name; ``advice``: what does not work there yet, ""
    if everything does."""

    id: ConversationRef
    name: str
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a chat is opened with. ``notes`` are its own; ``redact`` sees every text last."""

    config: Config
    clock: Clock
    notes: Notes
    redact: Callable[[str], str]


class PersonalPages(Protocol):
    """Each person's home page in the chat, with what needs them."""

    def opened(self, user: PersonRef) -> None:
        """Somebody opens their page."""

    def not_served(self, user: PersonRef) -> None:
        """Somebody pressed a button there that is out of date."""

    async def run(self) -> None:
        """Until cancelled."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """What the supervisor gives a chat that it connects. ``listened``: channels of this chat that are heard;
    ``interrupted`` notifies the channel of a turn that a worker finds interrupted; ``notice`` posts a text in a
    channel, perhaps in a thread; ``pages`` makes everybody's page once connected. ``registered`` are the channels of
    all repositories, ``people`` everybody who may use one, ``asking`` the channels with a card that waits for
    somebody."""

    sender: Sender
    intake: Intake
    dispatcher: Dispatcher
    journal: Journal
    notes: Notes
    direct: DirectThreads
    clock: Clock
    tasks: Tasks
    interrupted: Observers[ConversationRef]
    listened: Callable[[], dict[ConversationRef, Repo]]
    is_starting: Callable[[], bool]
    notice: Callable[[ConversationRef, str, MessageRef | None], Awaitable[None]]
    pages: Callable[[ChatConnection], PersonalPages]
    registered: Callable[[], Collection[ConversationRef]]
    people: Callable[[], Collection[PersonRef]]
    asking: Callable[[], Collection[ConversationRef]]


async def _meets_nobody(_users: Collection[PersonRef]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedChat:
    """A chat with the connection that brings its events. ``check`` raises ChatAuthError for a missing token or one of
    the wrong kind; ``use_tokens`` switches to checked tokens. ``work`` runs beside the connection, until cancelled;
    ``meet`` prepares for people who are newly allowed to write."""

    section: type[ChatSection]
    connection: ChatConnection
    check: Callable[[Config], None]
    use_tokens: Callable[[Config], None]
    work: Callable[[], Coroutine[object, object, None]]
    meet: Callable[[Collection[PersonRef]], Awaitable[None]] = _meets_nobody

    @property
    def name(self) -> ChatName:
        """The display name."""
        return self.section.title


class Integration(Protocol):
    """A chat before it is connected; enter ``chat`` to use it."""

    @property
    def chat(self) -> EnteredChat:
        """Sends everything that goes to this chat."""

    async def person(self, user: PersonRef) -> Person:
        """Look up a user ID. Raises ChatError."""

    def connect(self, host: Host) -> ConnectedChat:
        """Assemble what brings events and what handles them."""


class Platform(ABC):
    """A chat platform. ``section`` is its part of the configuration. ``setup_options`` and ``place_options`` are its
    options for `setup` and `add-repo`; ``needed_place`` is the option that `add-repo` requires. ``finds_people``: it
    finds people by more than their IDs. ``has_plain_notes``: its journal notes carry no name, because they are older
    than the other chats."""

    section: type[ChatSection]
    setup_options: tuple[Option, ...] = ()
    place_options: tuple[Option, ...] = ()
    needed_place = ""
    finds_people = False
    has_plain_notes = False

    @property
    def name(self) -> ChatName:
        """The display name."""
        return self.section.title

    @property
    def token_flags(self) -> tuple[str, ...]:
        """The options of `setup` that take its tokens."""
        keys = {f"{self.section.key}.{token.key}" for token in self.section.tokens}
        return tuple(option.flag for option in self.setup_options if option.key in keys)

    @abstractmethod
    def check(self, config: Config) -> None:
        """Raises ChatAuthError for a missing token, or one of the wrong kind."""

    @abstractmethod
    def open(self, given: Opening) -> Integration:
        """The chat, for a supervisor."""

    @abstractmethod
    def manifest(self, *, link: bool) -> str:
        """What a person creates in the chat before `setup`, in words or in the chat's own format; ``link``: where."""

    @abstractmethod
    async def set_up(self, wish: SetUp) -> str:
        """Save tokens and people that the chat accepts: the given ones, all or none; ask for missing ones if somebody
        can answer. Returns as whom we are connected if nobody was asked, otherwise "". Raises ConfigError,
        BadOptionError and ChatError, saying what to do."""

    @abstractmethod
    async def place(self, wish: PlaceWish) -> RepoPlace:
        """The requested place; otherwise the present one; otherwise one that somebody chooses. Raises
        CodeButlerError, BadOptionError, saying what to do."""

    def new_place(self, name: str, people: Sequence[PersonRef]) -> Given:  # noqa: ARG002 - whoever can needs them
        """The options for ``place`` to make one of that name, with these people in it. Raises CodeButlerError, saying
        what to do, if the chat lets no app make one."""
        raise CodeButlerError(
            f"{self.name} does not let apps create a group: create one, add the app to it, then run "
            f"`codebutler add-repo PATH {self.needed_place}` on the machine"
        )

    @abstractmethod
    def doctor(self, config: Config, table: RepoTable, clock: Clock) -> AsyncIterator[Finding]:
        """Everything that needs the chat; after a refused token nothing more is asked."""

    async def find_people(
        self,
        config: Config,  # noqa: ARG002 - whoever looks people up needs it
        wanted: Sequence[str],
        warn: Callable[[str], None],  # noqa: ARG002 - the same
    ) -> list[Person]:
        """The people meant; ``warn`` gets those who could not be looked up. Raises CodeButlerError if it is
        ambiguous."""
        from codebutler.chat.people import Person

        return [Person(id=self.section.person_in(each), names=()) for each in wanted]

    async def allowed(self, config: Config) -> list[Person]:
        """Who may use it, with their details in the chat. Raises ChatError."""
        from codebutler.chat.people import Person

        return [Person(id=each, names=()) for each in self.section_in(config).allowed_ids]

    def section_in(self, config: Config) -> ChatSection:
        """The part of a configuration that concerns this chat."""
        section: ChatSection = getattr(config, self.section.key)
        return section


PLATFORMS: Mapping[str, str] = MappingProxyType(
    {
        "Slack": "codebutler.chat.slack.platform",
        "Telegram": "codebutler.chat.telegram.platform",
    }
)
"""Name to the module whose ``PLATFORM`` it is."""


def platform(name: str) -> Platform:
    """The platform of that name, as the configuration's sections have it."""
    found: Platform = importlib.import_module(PLATFORMS[name]).PLATFORM
    return found


def platforms() -> tuple[Platform, ...]:
    """All of them, in order."""
    return tuple(map(platform, PLATFORMS))
