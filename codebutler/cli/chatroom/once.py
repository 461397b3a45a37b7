"""One message and its answer, for scripts: `send --wait`, and `chat` that reads from a pipe."""

from __future__ import annotations

from dataclasses import dataclass, field

from codebutler.cli.chatroom.answer import apart
from codebutler.cli.output import notice, printable_lines, say
from codebutler.cli.talk import talk
from codebutler.control.messages import ControlReply, Posted, Said, SendRequest

ASKS = "(waiting for your decision: in its thread in the chat, or in `codebutler chat`)"
HOW = {
    "stopped": "the run was stopped",
    "refused": "nothing was run",
    "interrupted": "the run was interrupted; its thread asks whether to continue",
}


@dataclass
class Told:
    """What was answered. ``texts`` by message: an edit replaces what it edits."""

    thread_ts: str = ""
    outcome: str = "done"
    texts: dict[str, str] = field(default_factory=dict)

    def show(self) -> None:
        """The answer, in the order in which its messages began; its figures and how a program ended beside it."""
        for text in self.texts.values():
            answer, aside = apart(text)
            if answer.strip():
                for line in answer.split("\n"):
                    say(line)
            for line in aside.split("\n") if aside.strip() else ():
                notice(line)
        if not self.ok:
            notice(f"codebutler: {HOW.get(self.outcome, 'the run failed')}")

    @property
    def ok(self) -> bool:
        """Whether it was done; otherwise it failed, was stopped, refused or interrupted."""
        return self.outcome == "done"

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
    told.outcome = done.text
    return told
