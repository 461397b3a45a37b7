"""What is said when a message is edited after its run has begun. Pure."""

from __future__ import annotations

from codebutler.actions import ASK_AGAIN_ACTION
from codebutler.message import Button, Message, said
from codebutler_worker.store.rows import TurnState

AGAIN = "✏️ Asked again with the edited text."
COMMAND = (
    "✏️ This message has been handled already, so editing it into a command runs nothing. Send the command as a new "
    "message."
)
_ANSWERED = "✏️ You edited a message that is already answered. The answer stands; it is for the original text."
_LIVE = "✏️ You edited a message I am working on. This run continues with the original text."
_ENDED = "✏️ You edited a message after its run had started. That run used the original text."


def edited(state: TurnState, value: str) -> Message:
    """The offer to start a new run; ``state`` is that of the turn the message is in."""
    stands = _ANSWERED if state == "done" else _LIVE if state in ("running", "waiting") else _ENDED
    return said(
        f"{stands}\nAsk again to start a new run with the edited text.",
        Button("Ask again", ASK_AGAIN_ACTION, value),
    )
