"""What the repositories take and give: one frozen dataclass per table. Pure.

Times are ISO 8601 texts in UTC, so that they sort; ``ts`` and ``thread_ts`` are the chat's. A conversation is
``channel:thread_ts``, or ``channel:`` where ``agent.scope`` makes the whole channel one conversation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TurnState = Literal["queued", "running", "waiting", "done", "failed", "stopped", "interrupted", "parked"]
OperationKind = Literal["post", "update", "react", "upload", "ended"]
OperationState = Literal["pending", "posted", "failed"]
AttachmentState = Literal["wanted", "stored", "transcribed", "failed"]
ApprovalState = Literal["pending", "allowed", "denied", "expired"]
ChangeState = Literal["proposed", "wanted", "made", "dropped"]
"""Shown to a person; to be written into ``memory.md``; written; refused."""
REPO_SCOPE = "repo"
"""The scope of a fact that everybody's agents are told; any other scope is a user's ID."""


def message_id(channel_id: str, ts: str) -> str:
    """The key of a message's row."""
    return f"{channel_id}:{ts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """A person's message; ``order`` sorts as text among those of its channel. ``agent`` is the prefix that was typed
    (None = the default agent), ``late`` that it was fetched from history. Rows of the WhatsApp era have no thread and
    no turn. SQLite has no booleans: what is read of one is 0 or 1."""

    id: str
    from_id: str
    channel_id: str
    content: str
    timestamp: str
    is_voice: bool = False
    acked: bool = False
    platform_msg_id: str = ""
    order: str = ""
    thread_ts: str = ""
    turn_id: str | None = None
    agent: str | None = None
    late: bool = False

    @property
    def key(self) -> str:
        """What names it within its channel: its ts, or a slash command's conversation."""
        return self.id.partition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentRow:
    """A file that came with a message. ``path``, once it is stored, is below the repository; ``transcript`` is
    what a voice message says."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """One turn of an agent. Its replies go to ``thread_ts``; it may start (or, parked, go on) once
    ``not_before`` is past. ``attempts``: how often its agent's service has sent it away. ``tree_before`` and
    ``tree_after`` are snapshots of the working tree, as commits. ``worked_s``: how long its agent has worked, without
    the time it waited for a person. ``job``: the scheduled job that asked for it, "" if a person did. ``plan``: JSON,
    the steps of its agent's task list as it ended, each with its state; "" if it had none."""

    id: str
    conversation: str
    channel_id: str
    thread_ts: str
    agent: str
    created_at: str
    state: TurnState = "queued"
    not_before: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    session_id: str | None = None
    reason: str | None = None
    result: str | None = None
    user_id: str = ""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """The session an agent resumes in a conversation, and what it has cost so far."""

    conversation: str
    channel_id: str
    agent: str
    session_id: str
    updated_at: str
    thread_ts: str = ""
    total_cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class ChannelSessionRow:
    """The Claude session of a whole channel."""

    channel_id: str
    session_id: str
    updated_at: str
    total_cost_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """Something to do in the chat, or ("ended") an end to be told. ``payload`` is the JSON of a model Operation, or of
    a TurnEnded; ``target_op_id`` names an earlier post whose ts this operation needs. ``seq`` is given by the store."""

    op_id: str
    conversation: str
    kind: OperationKind
    payload: str
    created_at: str
    seq: int = 0
    turn_id: str | None = None
    target_op_id: str | None = None
    state: OperationState = "pending"
    ts: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRow:
    """A question to a person about exactly one action (``digest`` is of ``action_json``).

    Several may share one card (``message_op_id``). ``votes`` are the users who allowed it so far, with spaces
    between them; ``needed`` of them allow it. ``for_session``: what it covers is allowed for the session.
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
    decided_by: str | None = None
    decided_at: str | None = None
    reason: str | None = None
    message_op_id: str | None = None
    needed: int = 1
    votes: str = ""
    for_session: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredRow:
    """A command whose answer takes a moment and changes nothing, so that it may be begun again.

    ``id``: that of the message that asked; a slash command's is its own. ``only_for``: the one user who is to see the
    answer, "" = everybody.
    """

    id: str
    name: str
    conversation: str
    user_id: str
    created_at: str
    argument: str = ""
    thread_ts: str | None = None
    only_for: str = ""
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """What some turns have used together."""

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


@dataclass(frozen=True, slots=True)
class BudgetAccount:
    """On whose account a turn goes: ``job`` is "" where a person asked for it."""

    user: str
    conversation: str
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpenseRow:
    """What one request of ours to a model has used, outside of turns. ``purpose`` stands where a turn has its agent and
    its job: a word in parentheses, which is neither's name. ``cost_usd`` is None where nobody knows the price."""

    purpose: str
    conversation: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    at: str


@dataclass(frozen=True, slots=True)
class Spent:
    """What the turns of one agent on one account have used."""

    agent: str
    account: BudgetAccount
    used: UsageTotal


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChangeRow:
    """Changes of the memory that belong together. ``changes`` is JSON: pairs of the old fact and the new one.

    ``user_id`` is who made it, "" where a model did. ``message_op_id`` is the card that asks for a decision.
    """

    id: str
    conversation: str
    channel_id: str
    thread_ts: str
    changes: str
    created_at: str
    state: ChangeState = "proposed"
    user_id: str = ""
    message_op_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLineRow:
    """Where a fact of the memory comes from; facts that people wrote into the file have no such row."""

    line: str
    channel_id: str
    thread_ts: str
    added_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow:
    """Something an agent was told to keep under a name."""

    scope: str
    key: str
    value: str
    channel_id: str
    thread_ts: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class MemoryReviewRow:
    """How far a conversation was reviewed: the end of its last turn that was looked at."""

    conversation: str
    up_to: str
