"""The repositories' rows: one frozen dataclass per table. Pure.

Times are ISO 8601 texts in UTC, so that they sort; ``ref`` and ``thread`` are the chat's. A conversation is
``channel:thread``, or ``channel:`` if ``agent.scope`` makes the whole channel one conversation. Each agent in a race
has a conversation of its own beside that, and with it a session and a worktree.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from codebutler.domain.refs import NO_PERSON, NOWHERE, ConversationRef, MessageRef, PersonRef

TurnState = Literal["queued", "running", "waiting", "done", "failed", "stopped", "interrupted", "parked"]
OperationKind = Literal["post", "update", "react", "upload", "ended"]
OperationState = Literal["pending", "posted", "failed"]
AttachmentState = Literal["wanted", "stored", "transcribed", "failed"]
ApprovalState = Literal["pending", "allowed", "denied", "expired"]
ChangeState = Literal["proposed", "wanted", "made", "dropped"]
"""A change is shown to a person, about to be written into ``memory.md``, written, or refused."""
REPO_SCOPE = "repo"
"""The scope of a fact for everybody's agents; any other scope is a user's ID."""

RACE = "~race-"
"""Between a conversation and the race in it."""


def message_id(channel_id: ConversationRef, ref: MessageRef) -> str:
    """The key of a message's row."""
    return f"{channel_id}:{ref}"


def key_of(message_id: str, channel_id: ConversationRef) -> MessageRef:
    """The key of a message within its channel: its ref, or a slash command's conversation; "" for another ID."""
    key = message_id.removeprefix(f"{channel_id}:")
    return MessageRef(key) if key != message_id else NOWHERE


def racers_conversation(conversation: str, race: str, number: int) -> str:
    """The conversation of the agent with that number in a race, which is held in another one."""
    return f"{conversation}{RACE}{race}-{number}"


def race_in(conversation: str) -> str:
    """The race in which an agent works in this conversation, "" if there is none."""
    return conversation.partition(RACE)[2].rpartition("-")[0]


def main_conversation(conversation: str) -> str:
    """The conversation in which the race is held; for any other conversation, itself."""
    return conversation.partition(RACE)[0]


def channel_of(conversation: str) -> ConversationRef:
    """The channel of a conversation. A channel's ID may contain a colon, a thread's may not."""
    return ConversationRef(conversation.rpartition(":")[0])


class InboxRow(Struct, frozen=True):
    """An event that was taken over: its key, and its place in the parent's journal."""

    key: str
    seq: int


class MessageRow(Struct, frozen=True, kw_only=True):
    """A person's message; ``order`` sorts as text among those of its channel. ``agent`` is the typed prefix
    (None = the default agent); ``late``: it was fetched from history. Rows of the WhatsApp era have no thread
    and no turn. SQLite has no booleans: they are read as 0 or 1."""

    id: str
    from_id: PersonRef
    channel_id: ConversationRef
    content: str
    timestamp: str
    is_voice: bool = False
    acked: bool = False
    platform_msg_id: MessageRef = NOWHERE
    order: str = ""
    thread: MessageRef = NOWHERE
    turn_id: str | None = None
    agent: str | None = None
    late: bool = False

    @property
    def key(self) -> MessageRef:
        """Its key within its channel: its ref, or a slash command's conversation."""
        return key_of(self.id, self.channel_id)


class AttachmentRow(Struct, frozen=True, kw_only=True):
    """A file of a message. ``path``, once it is stored, is below the repository; ``transcript`` is the text
    of a voice message."""

    message_id: str
    file_id: str
    position: int = 0
    name: str = ""
    mimetype: str = ""
    size_bytes: int = 0
    is_voice: bool = False
    state: AttachmentState = "wanted"
    path: str = ""
    transcript: str = ""


class TurnRow(Struct, frozen=True, kw_only=True):
    """One turn of an agent. Its replies go to ``thread``; it may start (or, parked, resume) after
    ``not_before``. ``attempts``: how often its agent's service has refused it. ``tree_before`` and
    ``tree_after`` are snapshots of the working tree, as commits. ``worked_s``: how long its agent has worked,
    without the time it waited for a person. ``job``: the scheduled job behind it, "" if a person sent it.
    ``plan``: JSON, its agent's final task list, each step with its state; "" if it had none. ``model``: the one that
    answered, "" if unknown. ``files``: how many it changed, None = unknown; ``commits``: the IDs of those it left,
    separated by spaces; ``checks``: "passed" or "failed", "" if none ran."""

    id: str
    conversation: str
    channel_id: ConversationRef
    thread: MessageRef
    agent: str
    created_at: str
    state: TurnState = "queued"
    not_before: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    session_id: str | None = None
    reason: str | None = None
    result: str | None = None
    user_id: PersonRef = NO_PERSON
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    agent_turns: int = 0
    progress_op_id: str | None = None
    attempts: int = 0
    tree_before: str | None = None
    tree_after: str | None = None
    worked_s: float = 0.0
    job: str = ""
    plan: str = ""
    model: str = ""
    commits: str = ""
    checks: str = ""
    files: int | None = None


class SessionRow(Struct, frozen=True, kw_only=True):
    """The session an agent resumes in a conversation, and what it has cost so far."""

    conversation: str
    channel_id: ConversationRef
    agent: str
    session_id: str
    updated_at: str
    thread: MessageRef = NOWHERE
    total_cost_usd: float = 0.0


class ChoiceRow(Struct, frozen=True):
    """What a conversation has chosen for itself, "" = what is configured: ``agent`` answers plain messages, ``model``
    is that of the agent ``model_of``, ``mode`` is a PermissionMode."""

    conversation: str
    agent: str = ""
    model: str = ""
    model_of: str = ""
    mode: str = ""
    updated_at: str = ""


class ChannelSessionRow(Struct, frozen=True):
    """The Claude session of a whole channel."""

    channel_id: ConversationRef
    session_id: str
    updated_at: str
    total_cost_usd: float = 0.0


class OutboxRow(Struct, frozen=True, kw_only=True):
    """An operation for the chat, or ("ended") the report of a turn's end. ``payload`` is the JSON of a model
    Operation, or of a TurnEnded; ``target_op_id`` names an earlier post whose ref this operation needs."""

    op_id: str
    conversation: str
    kind: OperationKind
    payload: str
    created_at: str
    turn_id: str | None = None
    target_op_id: str | None = None
    state: OperationState = "pending"
    ref: MessageRef | None = None
    code: str | None = None


class ApprovalRow(Struct, frozen=True, kw_only=True):
    """A question to a person about exactly one action (``digest`` is of ``action_json``).

    Several may share one card (``message_op_id``). ``votes`` are the users who allowed it so far, separated
    by spaces; ``needed`` of them allow it. ``for_session``: what it covers is allowed for the session.
    """

    id: str
    turn_id: str
    conversation: str
    tool: str
    action_json: str
    digest: str
    requested_at: str
    expires_at: str
    state: ApprovalState = "pending"
    decided_by: PersonRef | None = None
    decided_at: str | None = None
    reason: str | None = None
    message_op_id: str | None = None
    needed: int = 1
    votes: str = ""
    for_session: bool = False


class DeferredRow(Struct, frozen=True, kw_only=True):
    """A command that takes a moment and may be started again.

    ``id``: the message's; a slash command has its own. ``only_for``: the one user who sees the answer, "" =
    everybody.
    """

    id: str
    name: str
    conversation: str
    user_id: PersonRef
    created_at: str
    argument: str = ""
    thread: MessageRef | None = None
    only_for: PersonRef = NO_PERSON
    attempts: int = 0


class PullRow(Struct, frozen=True, kw_only=True):
    """A pull request that was opened from a conversation, for ``user_id``; ``remote`` is the address of its repository.

    ``checks`` is the last result of its checks and ``told`` the one that the thread was told, each with its commit.
    ``seen`` is JSON: the newest comment of each kind; "" = the present comments are not news. ``next_at``: when it is
    polled next; ``looks``: how often it was since something happened; it is not polled after ``until``. ``failures``:
    how many polls in a row failed; ``news``: how often the thread was told something."""

    id: str
    conversation: str
    thread: MessageRef
    user_id: PersonRef
    remote: str
    url: str
    number: int
    next_at: str
    until: str
    state: Literal["open", "merged", "closed", "left"] = "open"
    checks: str = ""
    told: str = ""
    seen: str = "{}"
    looks: int = 0
    failures: int = 0
    news: int = 0


class PullNewsRow(Struct, frozen=True):
    """News of a pull request that a person may hand to an agent, as its ``task``."""

    id: str
    pull_id: str
    task: str
    created_at: str


class FoundRow(Struct, frozen=True):
    """A turn found by search: its question and its answer."""

    turn_id: str
    question: str
    answer: str


class UsageTotal(Struct, frozen=True):
    """The use of some turns together."""

    usd: float = 0.0
    tokens: int = 0
    turns: int = 0
    minutes: float = 0.0

    def __add__(self, other: UsageTotal) -> UsageTotal:
        return UsageTotal(
            self.usd + other.usd,
            self.tokens + other.tokens,
            self.turns + other.turns,
            self.minutes + other.minutes,
        )


class BudgetAccount(Struct, frozen=True):
    """The account a turn is charged to: ``job`` is "" if a person sent it."""

    user: PersonRef
    conversation: str
    job: str = ""


class ExpenseRow(Struct, frozen=True, kw_only=True):
    """The use of one of our own model requests, outside turns. ``purpose`` stands in for the turn's agent and
    job: a word in parentheses, which neither can be named. ``cost_usd`` is None if the price is unknown."""

    purpose: str
    conversation: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    at: str


class Spent(Struct, frozen=True):
    """The use of one agent's turns on one account."""

    agent: str
    account: BudgetAccount
    used: UsageTotal


class MemoryChangeRow(Struct, frozen=True, kw_only=True):
    """Changes of the memory that belong together. ``changes`` is JSON: pairs of the old fact and the new one.

    ``user_id`` is the author, "" for a model. ``message_op_id`` is the card that asks for a decision.
    """

    id: str
    conversation: str
    channel_id: ConversationRef
    thread: MessageRef
    changes: str
    created_at: str
    state: ChangeState = "proposed"
    user_id: PersonRef = NO_PERSON
    message_op_id: str | None = None


class MemoryLineRow(Struct, frozen=True, kw_only=True):
    """The origin of a fact in the memory; facts that people wrote into the file have no such row."""

    line: str
    channel_id: ConversationRef
    thread: MessageRef
    added_at: str


class FactRow(Struct, frozen=True, kw_only=True):
    """A fact that an agent was told to remember under a name."""

    scope: str
    key: str
    value: str
    channel_id: ConversationRef
    thread: MessageRef
    updated_at: str


class MemoryReviewRow(Struct, frozen=True):
    """How far a conversation was reviewed: the end of the last reviewed turn."""

    conversation: str
    up_to: str
