"""The nouns of CodeButler: events in a chat, requests, and operations.

Of our own modules, it imports only ``message`` and ``refs``. Every struct is frozen plain data: the parent journals it,
the pipe carries it and the worker stores it in the same JSON form.

Only a chat's adapter interprets its references. For all other code, the ``ref`` of a message and a ``channel`` are
opaque names, compared for equality; separate fields hold what the adapter reads from them. ``sent_at``: when it
happened, in Unix seconds (for a deletion, whose time a chat may not tell, when the message was written). ``order``:
sorts as text among all messages of the channel, and so does the ref of a message of ours. ``is_direct``: it is in a
person's direct conversation with us.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from codebutler.domain.message import Message
from codebutler.domain.refs import NO_PERSON, NOWHERE, ConversationRef, MessageRef, PersonRef

ShortID = Annotated[str, Meta(max_length=100)]
ShortRef = Annotated[MessageRef, Meta(max_length=100)]
"""Of a worker: the parent keeps them, and a chat refuses a whole page for one button whose value is too long."""
Handled = Literal["no", "maybe", "yes"]
Origin = Literal["chat", "local", "schedule"]
OPERATOR = PersonRef("operator")
"""The person at this machine itself; nobody in a chat has this name."""
Value = Literal["answer", "notice", "outcome", "progress", "sign"]
"""The value of a call to the chat, highest first: answers, questions and approvals; failures and notices; the
outcome of a turn; progress; passing signs (waiting, working) and removals."""
TurnOutcome = Literal["done", "failed", "stopped", "refused", "interrupted"]
"""The outcome of a message: of its run, or "refused" before anything ran. An interrupted run may still be
continued, and then has another outcome."""
Mark = Literal["queued", "working", "waiting", "done", "failed", "stopped"]
"""How far the work on a message is; "waiting": for a person."""


class File(Struct, frozen=True, kw_only=True):
    """A file attached to a message, as the chat describes it; not fetched yet. ``is_voice``: the chat's own
    recorder made it."""

    id: str
    name: str = ""
    mimetype: str = ""
    size_bytes: int = 0
    url: str = ""
    is_voice: bool = False


class _OfMessage(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something happened to the message ``ref``, by ``user``."""

    channel: ConversationRef
    ref: MessageRef
    sent_at: float
    order: str
    is_direct: bool
    user: PersonRef


class MessagePosted(_OfMessage, frozen=True, kw_only=True, tag="message"):
    """A message in a channel or a thread. ``late``: sent while we were away; ``stale``: so long ago that we
    ask whether it still counts. ``job``: the scheduled job that sent it, "" for none. ``seen``: the newest
    card that its author saw when starting to write, "" = all above it. ``handled``: the chat shows that we
    worked on it, but our records, which are older, do not."""

    text: str
    thread: MessageRef | None = None
    files: tuple[File, ...] = ()
    mentioned: bool = False
    origin: Origin = "chat"
    late: bool = False
    stale: bool = False
    job: str = ""
    seen: MessageRef = NOWHERE
    handled: Handled = "no"

    @property
    def key(self) -> str:
        """The same when the chat delivers this event again (a mention comes twice)."""
        return f"message:{self.channel}:{self.ref}"

    @property
    def root(self) -> MessageRef:
        """The thread this message belongs to or would start."""
        return self.thread or self.ref


class MessageEdited(_OfMessage, frozen=True, kw_only=True, tag="edit"):
    """The text of an earlier message was replaced."""

    text: str
    edit: str
    thread: MessageRef | None = None

    @property
    def key(self) -> str:
        """One for each edit: the same message may be edited again."""
        return f"edit:{self.channel}:{self.ref}:{self.edit}"


class MessageDeleted(_OfMessage, frozen=True, kw_only=True, tag="delete"):
    """An earlier message was deleted by ``user`` (its author, if the chat does not tell)."""

    thread: MessageRef | None = None

    @property
    def key(self) -> str:
        """The same however often the chat reports it: a message is deleted once."""
        return self.key_of(self.channel, self.ref)

    @staticmethod
    def key_of(channel: ConversationRef, ref: MessageRef) -> str:
        """The key of the deletion of that message."""
        return f"delete:{channel}:{ref}"


class SlashCommand(Struct, frozen=True, kw_only=True, tag_field="kind", tag="slash"):
    """``/butler …`` was typed; the chat shows no message for it."""

    channel: ConversationRef
    is_direct: bool
    user: PersonRef
    command: str
    text: str
    invocation: str

    @property
    def key(self) -> str:
        """``invocation`` is new each time: the same text typed twice is two events."""
        return f"slash:{self.channel}:{self.invocation}"


class ButtonClicked(Struct, frozen=True, kw_only=True, tag_field="kind", tag="click"):
    """A button on one of our messages was pressed; ``user_name`` as the chat shows it, if it says so.

    ``words``: the text of the form that the button opened. ``picked``: the values of the boxes that were
    ticked beside it.
    """

    channel: ConversationRef
    is_direct: bool
    user: PersonRef
    message: MessageRef
    action_id: str
    value: str
    press: str
    thread: MessageRef | None = None
    user_name: str = ""
    words: str = ""
    picked: tuple[str, ...] = ()
    origin: Origin = "chat"

    @property
    def key(self) -> str:
        """``press`` is new each time: the same button may be pressed again."""
        return f"click:{self.channel}:{self.message}:{self.press}"


Event = MessagePosted | MessageEdited | MessageDeleted | SlashCommand | ButtonClicked


class Quoted(Struct, frozen=True, kw_only=True):
    """An earlier message in the chat, as background. ``allowed``: from somebody who may instruct agents here."""

    ref: MessageRef
    user: PersonRef
    text: str
    name: str = ""
    allowed: bool = False


class Prompt(Struct, frozen=True, kw_only=True, tag_field="kind", tag="prompt"):
    """Text for an agent; ``prefix`` is the typed one (``claude: …``), None = the default."""

    text: str
    prefix: str | None = None


class Command(Struct, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """One of our commands (``!status``), with the rest of the line as its argument."""

    name: str
    argument: str = ""


class NoRequest(Struct, frozen=True, kw_only=True, tag_field="kind", tag="none"):
    """An event without text to act on: a deletion, a click."""


Request = Prompt | Command | NoRequest


class Post(Struct, frozen=True, kw_only=True, tag_field="kind", tag="post"):
    """Post a message.

    ``only_for``: the one user who sees it, until their client forgets it; it cannot be edited or found again.
    ``mention``: a user to mention at the top, by the parent and only if they may talk to us. ``in_place``: it
    is the whole of what was streamed in its thread, and may replace it there. ``outdated``: nobody needs it
    any more; if it was sent before, its ref is wanted, else it is not sent.
    """

    message: Message
    thread: ShortRef | None = None
    only_for: PersonRef = NO_PERSON
    mention: PersonRef = NO_PERSON
    in_place: bool = False
    value: Value = "answer"
    outdated: bool = False


class Update(Struct, frozen=True, kw_only=True, tag_field="kind", tag="update"):
    """Replace the content of a message of ours. An edit notifies nobody, not even the users it mentions."""

    target: ShortRef
    message: Message
    value: Value = "progress"


class React(Struct, frozen=True, kw_only=True, tag_field="kind", tag="react"):
    """Set (or with ``remove`` take away) a mark on a message, as the chat shows it; doing it twice is harmless."""

    target: ShortRef
    mark: Mark
    remove: bool = False
    value: Value = "sign"


class Upload(Struct, frozen=True, kw_only=True, tag_field="kind", tag="upload"):
    """Put a file into a thread."""

    filename: str
    content: bytes
    title: str = ""
    comment: str = ""
    thread: ShortRef | None = None
    value: Value = "answer"


Operation = Post | Update | React | Upload


class Asked(Struct, frozen=True, kw_only=True):
    """A question that an agent waits for: permission, or a choice of ``options``. ``text`` (Markdown) is all
    of it; "" if its card has to be read first. ``card`` is that card. ``several``: more than one may be
    chosen."""

    id: ShortID
    card: ShortRef
    text: str = ""
    options: tuple[str, ...] = ()
    is_question: bool = False
    several: bool = False


class TurnNote(Struct, frozen=True, kw_only=True):
    """A turn, as App Home and the dashboard show it. ``state`` is as in the store, or "waiting" for one that ended with
    an open question; ``at`` is the time of its last move (ISO 8601, UTC), ``text`` the first words of what was asked.
    ``card``: the message that asks whether to continue it, "" if none does; ``changed``: whether it is known to have
    changed files."""

    state: str
    thread: ShortRef
    text: str
    agent: str
    at: str
    cost_usd: float | None = None
    id: ShortID = ""
    card: ShortRef = NOWHERE
    asked: tuple[Asked, ...] = ()
    why: str = ""
    changed: bool = False
