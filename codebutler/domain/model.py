"""The nouns of CodeButler: what happens in a chat, what was asked, and what is said back.

Imports of ours only what is said. Every struct is frozen and is plain data: the parent journals it, the pipe carries
it and the worker stores it in the same JSON form.

Only a chat's adapter reads its ids. To everybody else the ``ts`` of a message and a ``channel`` are names, compared for
being the same; what the adapter read in them stands beside them. ``sent_at``: when it happened, in Unix seconds (of a
deletion, whose time a chat may not tell, when the message was written). ``order``: sorts as text among all that was
written in the channel, and so does the ts of a message of ours there. ``is_direct``: it is somebody's conversation with
us alone.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from codebutler.domain.message import Message

Handled = Literal["no", "maybe", "yes"]
Origin = Literal["chat", "local", "schedule"]
OPERATOR = "operator"
"""Who speaks from this machine itself; nobody in a chat is named like it."""


class File(Struct, frozen=True, kw_only=True):
    """A file attached to a message, as the chat describes it; its content has not been fetched."""

    id: str
    name: str = ""
    mimetype: str = ""
    size_bytes: int = 0
    url: str = ""
    subtype: str = ""


class _OfMessage(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something happened to the message ``ts``, by ``user``."""

    channel: str
    ts: str
    sent_at: float
    order: str
    is_direct: bool
    user: str


class MessagePosted(_OfMessage, frozen=True, kw_only=True, tag="message"):
    """Somebody wrote in a channel or a thread. ``late``: while we were away; ``stale``: so long ago that it
    is to be asked whether it still counts. ``job``: the scheduled job that says it, "" if none does. ``seen_ts``: the
    newest card that its writer saw when they began to write, "" = all above it. ``handled``: what the chat shows of
    our work on it, though we do not remember any: our files are older than that."""

    text: str
    thread_ts: str | None = None
    files: tuple[File, ...] = ()
    mentioned: bool = False
    origin: Origin = "chat"
    late: bool = False
    stale: bool = False
    job: str = ""
    seen_ts: str = ""
    handled: Handled = "no"

    @property
    def key(self) -> str:
        """What makes this event the same event when the chat delivers it again (a mention comes twice)."""
        return f"message:{self.channel}:{self.ts}"

    @property
    def root_ts(self) -> str:
        """The thread this message belongs to or would start."""
        return self.thread_ts or self.ts


class MessageEdited(_OfMessage, frozen=True, kw_only=True, tag="edit"):
    """The text of an earlier message was replaced."""

    text: str
    edited_ts: str
    thread_ts: str | None = None

    @property
    def key(self) -> str:
        """One for each edit: the same message may be edited again."""
        return f"edit:{self.channel}:{self.ts}:{self.edited_ts}"


class MessageDeleted(_OfMessage, frozen=True, kw_only=True, tag="delete"):
    """An earlier message was withdrawn by ``user`` (its author, as far as the chat tells)."""

    thread_ts: str | None = None

    @property
    def key(self) -> str:
        """The same however often the chat tells of it: a message is withdrawn once."""
        return f"delete:{self.channel}:{self.ts}"


class SlashCommand(Struct, frozen=True, kw_only=True, tag_field="kind", tag="slash"):
    """``/butler …`` was typed; Slack shows no message for it and allows none inside threads."""

    channel: str
    is_direct: bool
    user: str
    command: str
    text: str
    trigger_id: str

    @property
    def key(self) -> str:
        """Slack's trigger id, which is new each time: the same words typed twice are two wishes."""
        return f"slash:{self.channel}:{self.trigger_id}"


class ButtonClicked(Struct, frozen=True, kw_only=True, tag_field="kind", tag="click"):
    """A button of one of our messages was pressed; ``user_name`` as the workspace shows it, if it says so.

    ``words``: what was written in the form that the button opened. ``picked``: the values of the boxes that were
    ticked beside it.
    """

    channel: str
    is_direct: bool
    user: str
    message_ts: str
    action_id: str
    value: str
    action_ts: str
    thread_ts: str | None = None
    user_name: str = ""
    words: str = ""
    picked: tuple[str, ...] = ()
    origin: Origin = "chat"

    @property
    def key(self) -> str:
        """``action_ts`` makes it one press: the same button may be pressed again."""
        return f"click:{self.channel}:{self.message_ts}:{self.action_ts}"


Event = MessagePosted | MessageEdited | MessageDeleted | SlashCommand | ButtonClicked


class Quoted(Struct, frozen=True, kw_only=True):
    """Something that was said in the chat, as background. ``allowed``: by somebody who may instruct agents here."""

    ts: str
    user: str
    text: str
    name: str = ""
    allowed: bool = False


class Prompt(Struct, frozen=True, kw_only=True, tag_field="kind", tag="prompt"):
    """Text for an agent; ``prefix`` names the one that was asked for (``claude: …``), None = the default."""

    text: str
    prefix: str | None = None


class Command(Struct, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """One of our own words (``!status``), with the rest of the line as its argument."""

    name: str
    argument: str = ""


class NoRequest(Struct, frozen=True, kw_only=True, tag_field="kind", tag="none"):
    """An event that carries no text to act on: a deletion, a click."""


Request = Prompt | Command | NoRequest


Value = Literal["answer", "notice", "outcome", "progress", "sign"]
"""What a call to the chat is worth, the dearest first: answers, questions and approvals; failures and notices; how a
turn ended; how it goes on; passing signs (waiting, working) and what is taken away."""


TurnOutcome = Literal["done", "failed", "stopped", "refused", "interrupted"]
"""What became of a message: it was worked on, or was "refused" before anything ran. What was interrupted may still go
on, if somebody says so, and has another outcome then."""


class Post(Struct, frozen=True, kw_only=True, tag_field="kind", tag="post"):
    """Say something.

    ``only_for``: the one user who sees it, until their client forgets it; it cannot be edited or found again.
    ``mention``: a user to be called at its top, by the parent and only if allowed to talk to us.
    ``in_place``: it is what was streamed in its thread, now whole: it may stand where that stands.
    ``outdated``: nobody needs it any more; if it was sent before, its ts is wanted, else it is left unsent.
    """

    message: Message
    thread_ts: str | None = None
    only_for: str = ""
    mention: str = ""
    in_place: bool = False
    value: Value = "answer"
    outdated: bool = False


class Update(Struct, frozen=True, kw_only=True, tag_field="kind", tag="update"):
    """Replace the content of a message of ours. Who is named in it by a mention is called by nobody: it is an edit."""

    target_ts: str
    message: Message
    value: Value = "progress"


class React(Struct, frozen=True, kw_only=True, tag_field="kind", tag="react"):
    """Set (or with ``remove`` take away) our reaction ``name`` on a message; doing it twice is harmless."""

    target_ts: str
    name: str
    remove: bool = False
    value: Value = "sign"


class Upload(Struct, frozen=True, kw_only=True, tag_field="kind", tag="upload"):
    """Put a file into a thread."""

    filename: str
    content: bytes
    title: str = ""
    comment: str = ""
    thread_ts: str | None = None
    value: Value = "answer"


Operation = Post | Update | React | Upload


class Asked(Struct, frozen=True, kw_only=True):
    """What an agent waits to hear from people: leave, or a choice of ``options``. ``text`` (Markdown) says all of it;
    "" where its card has to be read first. ``card_ts`` is that card. ``several``: more than one may be chosen."""

    id: str
    card_ts: str
    text: str = ""
    options: tuple[str, ...] = ()
    is_question: bool = False
    several: bool = False


class TurnNote(Struct, frozen=True, kw_only=True):
    """The newest turn of a conversation, as App Home shows it. ``state`` is the store's word, or "waiting" for one that
    ended with an open question; ``at`` is the time of its last move (ISO 8601, UTC), ``text`` the first words of what
    was asked. ``card_ts``: the message that asks whether it is to go on, "" if none does."""

    state: str
    thread_ts: str
    text: str
    agent: str
    at: str
    cost_usd: float | None = None
    id: str = ""
    card_ts: str = ""
    asked: tuple[Asked, ...] = ()
    why: str = ""
