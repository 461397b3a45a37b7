"""One message and its answer, for scripts: `send --wait`, and `chat` that reads from a pipe."""

from __future__ import annotations

from dataclasses import dataclass, field

from codebutler.cli.output import notice, printable_lines
from codebutler.cli.talk import talk
from codebutler.control.wire import ControlReply, Posted, Said, SendRequest

ASKS = "(a decision is asked for: take it in the thread in Slack, or in `codebutler chat`)"


@dataclass
class Told:
    """What was answered. ``texts`` by message: an edit replaces what it edits."""

    thread_ts: str = ""
    ok: bool = True
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """Every line, in the order in which the messages began."""
        return [line for text in self.texts.values() for line in text.split("\n")]

    @property
    def outcome(self) -> str:
        """In a word."""
        return "is done" if self.ok else "failed or was stopped"

    def take(self, reply: ControlReply) -> None:
        """Keep what is said; say at once what waits for somebody."""
        match reply:
            case Posted(thread_ts=thread_ts):
                self.thread_ts = thread_ts
            case Said(kind="card", choices=choices, text=text) if choices:
                notice(ASKS)
                for line in printable_lines(text).split("\n"):
                    notice(line)
            case Said(kind="text", ts=ts, text=text):
                self.texts[ts] = text


def ask_once(repo: str, text: str, thread_ts: str | None = None) -> Told:
    """Say ``text`` and wait for its outcome. Raises CodeButlerError."""
    told = Told()
    done = talk(SendRequest(repo=repo, text=text, wait=True, thread_ts=thread_ts), told.take)
    told.ok = done.ok
    return told
