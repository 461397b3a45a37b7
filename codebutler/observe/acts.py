"""What stands in the audit log: acts, made of the chat's events. Pure."""

from __future__ import annotations

import hashlib

from msgspec import Struct, structs

from codebutler.model import ButtonClicked, Command, Event, Prompt, Request

# So much of what was refused is kept.
TEXT_CHARS = 500
KIND_CHARS = 100


class Act(Struct, frozen=True, kw_only=True):
    """What was executed or refused. ``thread``: its ts, "" for none."""

    kind: str
    user: str
    channel: str
    text: str
    decision: str
    thread: str = ""
    exit_code: int | None = None
    duration_s: float | None = None


def kind_of(event: Event, request: Request) -> str:
    """The audit log's word for what was asked."""
    if isinstance(event, ButtonClicked):
        return f"button {event.action_id}"
    if isinstance(request, Command):
        return f"command {request.name}"
    if isinstance(request, Prompt):
        return f"prompt {request.prefix}" if request.prefix else "prompt"
    return type(event).__name__


def act_of(event: Event, kind: str, decision: str) -> Act:
    """What an event of the chat asked for."""
    return Act(
        user=event.user,
        channel=event.channel,
        thread=str(getattr(event, "thread_ts", None) or getattr(event, "ts", "")),
        kind=kind,
        text=getattr(event, "text", "") or getattr(event, "words", ""),
        decision=decision,
    )


def shortened(act: Act) -> Act:
    """The refused act with the beginning of its text; the digest proves which text it was."""
    kind, text = act.kind[:KIND_CHARS], act.text
    if len(text) > TEXT_CHARS:
        digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
        text = f"{text[:TEXT_CHARS]}… ({len(text)} characters, SHA-256 {digest})"
    return structs.replace(act, kind=kind, text=text)
