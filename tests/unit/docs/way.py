"""The path of one message, as the architecture page draws it. Each arrow names the function that makes it, and
``tests/integration/bench/test_walking.py`` finds each of them on the recorded path of a real message.
"""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """An arrow between two participants; ``file`` and ``function`` make it, as `make walk V=-v` prints."""

    begin: str
    end: str
    text: str
    file: str
    function: str


NAMES = {
    "person": "chat",
    "adapter": "chat/slack",
    "intake": "intake",
    "supervisor": "supervisor",
    "worker": "worker",
    "run": "conversation",
    "agent": "agents, sandbox",
    "outbox": "runtime",
    "delivery": "chat/delivery",
}
STEPS = (
    Step("person", "adapter", "envelope", "chat/slack/link.py", "SocketLink._take"),
    Step("adapter", "adapter", "parse the payload", "chat/slack/payloads.py", "parse_envelope"),
    Step("adapter", "intake", "check permission and duplicates", "intake/intake.py", "Intake.accept"),
    Step("intake", "intake", "write to the journal", "intake/journal.py", "Journal.append"),
    Step("adapter", "person", "acknowledge", "chat/slack/link.py", "SocketLink._handle"),
    Step(
        "intake", "intake", "hold back, answer here or audit", "intake/dispatcher.py", "Dispatcher.dispatch"
    ),
    Step(
        "intake",
        "supervisor",
        "choose the channel's worker",
        "supervisor/supervisor.py",
        "Supervisor.deliver",
    ),
    Step("supervisor", "worker", "send over the pipe", "worker/inbox.py", "EventInbox.take"),
    Step("worker", "run", "store it, queue a run", "conversation/messages.py", "enqueue"),
    Step(
        "worker", "supervisor", "confirm that it is stored", "supervisor/session.py", "WorkerSession._stored"
    ),
    Step("run", "run", "debounce, choose the next run", "conversation/queue.py", "choose"),
    Step("run", "agent", "start the run", "agents/running.py", "TurnBackend.start"),
    Step("agent", "agent", "run in the sandbox", "sandbox/limits.py", "AgentSandbox.wrap"),
    Step("agent", "run", "text and tool calls", "conversation/turn.py", "RunningTurn._receive"),
    Step("run", "outbox", "store answer and final mark in one commit", "conversation/end.py", "conclude"),
    Step("outbox", "delivery", "send over the pipe", "chat/delivery/sender.py", "Sender.deliver"),
    Step("delivery", "delivery", "choose the next API call", "chat/delivery/planner.py", "plan"),
    Step("delivery", "adapter", "render", "chat/slack/render.py", "rendered"),
    Step("adapter", "person", "post", "chat/slack/api.py", "SlackApi.post"),
    Step("delivery", "outbox", "posted: remove it", "runtime/runtime.py", "Outbox.settle"),
)


def sequence() -> str:
    """The Mermaid picture, and under it where each arrow is made."""
    return "\n".join(
        [
            "```mermaid",
            "sequenceDiagram",
            *(f"  participant {key} as {name}" for key, name in NAMES.items()),
            *(f"  {step.begin}->>{step.end}: {step.text}" for step in STEPS),
            "```",
            "",
            "| step | function |",
            "|---|---|",
            *(f"| {step.text} | `{step.file}`: `{step.function}` |" for step in STEPS),
        ]
    )
