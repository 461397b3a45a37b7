"""What the repositories of the memory take and give. Pure. Times are as in ``rows``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ChangeState = Literal["proposed", "wanted", "made", "dropped"]
"""Shown to a person; to be written into ``memory.md``; written; refused."""

REPO_SCOPE = "repo"
"""The scope of a fact that everybody's agents are told; any other scope is a user's ID."""


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
