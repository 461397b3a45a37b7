"""A row of the run ledger: as `codebutler ledger` shows it, and as a host reports it to its gateway."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.protocol.messages import Amount

Whole = Annotated[int, Meta(ge=0, le=10**15)]


class LedgerRow(Struct, frozen=True, kw_only=True):
    """A run, or (without ``run``) a model request of ours. ``at`` and ``ended`` are ISO 8601 in UTC. ``cost_usd`` None:
    the agent did not say; ``files`` None: unknown. ``duration_s`` is its agent's working time. ``link``: where people
    see its thread, "" if the chat has no such address."""

    repo: str
    run: str
    at: str
    ended: str
    user: PersonRef
    job: str
    agent: str
    model: str
    session: str
    outcome: str
    input_tokens: Whole
    output_tokens: Whole
    cost_usd: Amount | None
    duration_s: Amount
    files: Whole | None
    commits: tuple[str, ...]
    checks: str
    channel: ConversationRef
    thread: str
    link: str
