"""What is said about a turn besides its answer: interrupted, failed, and what became of it. Pure."""

from __future__ import annotations

from codebutler.actions import DROP_ACTION, RETRY_ACTION
from codebutler.message import Button, Message, said
from codebutler.text.markup import plain
from codebutler_worker.present.lines import code, one_line

CONTINUED = "▶ Continued."
DROPPED = "🛑 Dropped."


WRITTEN_LATE = "🕰️ _you wrote this while I was offline_"
"""At the end of an answer: a message of its own would take its place in the chat's limits."""
LATE = "🕰️ You wrote this while I was offline. Working on it now."
CROWDED_TEXT = "📚 Too many of your messages are already waiting here, so this one is on hold."
STILL_CROWDED = "📚 There is still no room for it: your other messages come first."
LATE_COMMAND = "🕰️ I was offline when you wrote that. Send it again if you still need it."


def stale_text(request: str) -> str:
    """What was asked so long ago that it may not count any more."""
    return f"🕰️ You wrote this while I was offline for a long time: _{plain(one_line(request)) or '…'}_."


def stale(turn_id: str, request: str) -> Message:
    """The question whether it still counts."""
    return said(
        f"{stale_text(request)}\nShall I still do it?",
        Button("Continue", RETRY_ACTION, turn_id, "primary"),
        Button("Drop", DROP_ACTION, turn_id),
    )


def handled_text(request: str) -> str:
    """What I may have worked on in a life that I do not remember."""
    return (
        f"🕰️ I may have worked on this before: _{plain(one_line(request)) or '…'}_. "
        "My records are older than your message, so a backup was probably restored."
    )


def handled(turn_id: str, request: str) -> Message:
    """The question whether it is to be run (again)."""
    return said(
        f"{handled_text(request)}\nCheck what is there already. Shall I run it?",
        Button("Continue", RETRY_ACTION, turn_id, "primary"),
        Button("Drop", DROP_ACTION, turn_id),
    )


def crowded(turn_id: str, most: int) -> Message:
    """The same with the choice."""
    return said(
        f"{CROWDED_TEXT} {most} may wait (`agent.queuePerUser`). Press **Continue** when there is room.",
        Button("Continue", RETRY_ACTION, turn_id),
        Button("Drop", DROP_ACTION, turn_id),
    )


def interrupted_text(request: str, last_seen: str | None) -> str:
    """What was running when the worker ended."""
    doing = f" It was last seen at {code(last_seen)}." if last_seen else ""
    return f"⚠️ The machine stopped while I was working on: _{plain(one_line(request)) or '…'}_.{doing}"


def program_interrupted(command: str, session: str) -> str:
    """What became of a command or session whose worker ended."""
    return (
        f"❌ The machine stopped while {code(command) if command else 'this'} ran, and it ended with it. "
        f"What it wrote until then: `!logs {session}`. Say it again to run it again."
    )


def interrupted(turn_id: str, request: str, last_seen: str | None) -> Message:
    """The question that a person answers once: go on, or leave it."""
    return said(
        f"{interrupted_text(request, last_seen)}\nNothing runs again by itself. Shall I go on?",
        Button("Continue", RETRY_ACTION, turn_id, "primary"),
        Button("Drop", DROP_ACTION, turn_id),
    )


def stopped_text(request: str) -> str:
    """What a person has stopped."""
    return f"🛑 Stopped: _{plain(one_line(request)) or '…'}_."


def failed_text(line: str) -> str:
    """A failure in one line that says what to do."""
    return f"❌ {plain(one_line(line, 500)) or 'The agent failed without an error message.'}"


def failed(turn_id: str, line: str, *, resumable: bool) -> Message:
    """A failure; one that met a limit can be continued."""
    text = failed_text(line)
    if not resumable:
        return said(text)
    return said(text, Button("Continue", RETRY_ACTION, turn_id, "primary"))


def decided(text: str, verdict: str) -> Message:
    """The question again, without its buttons and with what was decided."""
    return said(f"{text}\n{verdict}")
