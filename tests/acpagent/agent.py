"""A program that speaks the Agent Client Protocol as its one argument says, also as no real agent should.

Of the standard library alone, so that it starts fast and is a second opinion on the protocol.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SESSION = "sess-1"
UNKNOWN = {"code": -32602, "message": "Invalid params: unknown session"}
Message = dict[str, Any]


class Agent:
    """``temper`` is how it behaves."""

    def __init__(self, temper: str) -> None:
        self.temper = temper
        self.asked = 100
        self.said: list[str] = []

    def run(self) -> int:
        """Serve until stdin ends; returns the exit code."""
        if self.temper == "stub":
            out("kimi-cli is no longer maintained.")
            return 0
        while message := self.receive():
            if self.temper == "deaf":
                continue
            answer = getattr(self, message.get("method", "").replace("/", "_"), None)
            if answer is None and "method" in message and "id" in message:
                self.fail(message, {"code": -32601, "message": "Method not found"})
            elif answer is not None:
                code = answer(message)
                if code is not None:
                    return int(code)
        return 0

    # -- what it is asked

    def initialize(self, message: Message) -> None:
        abilities: Message = {"loadSession": self.temper == "loads"}
        if self.temper not in ("loads", "forgetful"):
            abilities["sessionCapabilities"] = {"resume": {}}
        version = 9 if self.temper == "version" else 1
        self.answer(message, {"protocolVersion": version, "agentCapabilities": abilities})

    def session_new(self, message: Message) -> None:
        if self.temper == "locked":
            self.fail(message, {"code": -32000, "message": "Authentication required"})
            return
        (Path(message["params"]["cwd"]) / "known").write_text(SESSION)
        modes = {"currentModeId": "default", "availableModes": [{"id": "default", "name": "Default"}]}
        self.answer(message, {"sessionId": SESSION, "modes": modes})

    def session_resume(self, message: Message) -> None:
        self.session_load(message)

    def session_load(self, message: Message) -> None:
        if message["params"]["sessionId"] != SESSION:
            self.fail(message, UNKNOWN)
            return
        self.update(sessionUpdate="agent_message_chunk", content=text("what was said long ago"))
        self.answer(message, None)

    def session_prompt(self, message: Message) -> int | None:
        told = message["params"]["prompt"][0]["text"]
        self.said.append(told)
        play = getattr(self, f"play_{self.temper}", self.play_plain)
        result = play(told)
        if isinstance(result, int):
            return result
        self.answer(message, result)
        return None

    # -- how it answers a prompt: the result, or an exit code to die with

    def play_plain(self, told: str) -> Message | int:
        if told == "work":
            self.say("Working.")
            self.update(
                sessionUpdate="tool_call", toolCallId="w", title="Wait", kind="other", rawInput={"s": 300}
            )
            return self.until_cancelled()
        self.say(f"You said: {told}")
        return {"stopReason": "end_turn"}

    def play_mad(self, told: str) -> Message:
        """Everything but the answer itself is wrong."""
        out("this is no JSON")
        out("[1, 2, 3]")
        out('{"jsonrpc": "2.0", "id": [1], "result": {}}')
        out('{"jsonrpc": "2.0", "id": 99, "error": "all of it"}')
        out('{"jsonrpc": "2.0", "method": 7}')
        out("[" * 100_000)
        out('"' + "x" * (17 * 2**20) + '"')
        self.update(sessionUpdate="nonsense", content=7)
        self.update(sessionUpdate="agent_message_chunk", content={"type": "text"})
        self.update(sessionUpdate="tool_call", toolCallId=5)
        send({"method": "session/update", "params": {"sessionId": "another", "update": chunk("not mine")}})
        send({"method": "$/whatever", "params": None})
        self.update(sessionUpdate="tool_call_update", toolCallId="never-begun", status="completed")
        self.say("Sane in the end.")
        return {"stopReason": "end_turn", "usage": "none"}

    def play_tools(self, told: str) -> Message:
        call = {
            "toolCallId": "c1",
            "title": "Reading src/app.py",
            "kind": "read",
            "rawInput": {"path": "src/app.py"},
        }
        self.update(sessionUpdate="agent_thought_chunk", content=text("Let me see."))
        self.say("I will ")
        self.say("look.")
        self.update(sessionUpdate="tool_call", status="pending", **call)
        self.update(sessionUpdate="tool_call_update", toolCallId="c1", status="in_progress")
        content = [{"type": "content", "content": text("def greet")}]
        self.update(sessionUpdate="tool_call_update", toolCallId="c1", status="completed", content=content)
        self.update(sessionUpdate="tool_call", toolCallId="c2", title="Run the tests", kind="execute")
        self.update(sessionUpdate="tool_call_update", toolCallId="c2", status="failed", rawOutput="1 failed")
        entry = {"content": "Mend it", "priority": "high", "status": "completed"}
        self.update(sessionUpdate="plan", entries=[entry])
        self.say("Seen.")
        cost = {"amount": 0.75, "currency": "USD"}
        self.update(sessionUpdate="usage_update", used=10, size=100, cost=cost)
        return {"stopReason": "end_turn", "usage": {"totalTokens": 12, "inputTokens": 10, "outputTokens": 2}}

    def play_asks(self, told: str) -> Message | int:
        if told != "go":
            return self.play_plain(told)
        diff = {"type": "diff", "path": "/r/a", "oldText": "1", "newText": "2"}
        options = [option("yes", "allow_once"), option("always", "allow_always"), option("no", "reject_once")]
        edit = self.permission({"toolCallId": "c1", "title": "Edit a", "content": [diff]}, options)
        colours = [option("Red", "allow_once"), option("Blue", "allow_once"), option("Skip", "reject_once")]
        which = {
            "toolCallId": "c2",
            "title": "Colour",
            "content": [{"type": "content", "content": text("Which?")}],
        }
        self.say(f"{edit} {self.permission(which, colours)}")
        return {"stopReason": "end_turn"}

    def play_hasty(self, told: str) -> Message:
        """Asks, and does not wait for the answer."""
        options = [option("yes", "allow_once"), option("no", "reject_once")]
        given = {"sessionId": SESSION, "toolCall": {"toolCallId": "c1", "title": "Do it"}, "options": options}
        send({"id": 7, "method": "session/request_permission", "params": given})
        self.update(sessionUpdate="tool_call_update", toolCallId="c1", status="failed")
        self.say(self.receive()["result"]["outcome"]["outcome"])
        return {"stopReason": "end_turn"}

    def play_reaches(self, told: str) -> Message:
        given = {"sessionId": SESSION, "path": "/etc/passwd"}
        refused = [self.ask(method, given) for method in ("fs/read_text_file", "terminal/create", "made/up")]
        self.say(" ".join(str(answer["error"]["code"]) for answer in refused))
        return {"stopReason": "end_turn"}

    def play_bequeaths(self, told: str) -> int:
        subprocess.Popen(["sleep", "300"], start_new_session=True)
        return self.play_dies(told)

    def play_dies(self, told: str) -> int:
        self.say("I am")
        sys.stderr.write("out of something\n")
        return 3

    def play_wordless(self, told: str) -> Message:
        return {"stopReason": "end_turn"}

    def play_stops(self, told: str) -> Message:
        """The prompt names the stop reason."""
        self.say("So far.")
        return {"stopReason": told}

    def play_stubborn(self, told: str) -> int:
        self.say("Working.")
        while self.receive():
            pass
        return 0

    def until_cancelled(self) -> Message | int:
        while message := self.receive():
            if message.get("method") == "session/cancel":
                return {"stopReason": "cancelled"}
        return 0

    # -- the wire

    def permission(self, call: Message, options: list[Message]) -> str:
        given = {"sessionId": SESSION, "toolCall": call, "options": options}
        outcome = self.ask("session/request_permission", given)["result"]["outcome"]
        return str(outcome.get("optionId", outcome["outcome"]))

    def ask(self, method: str, params: Message) -> Message:
        self.asked += 1
        send({"id": self.asked, "method": method, "params": params})
        while message := self.receive():
            if message.get("id") == self.asked and "method" not in message:
                return message
        raise SystemExit(0)

    def receive(self) -> Message:
        line = sys.stdin.readline()
        return json.loads(line) if line else {}

    def say(self, words: str) -> None:
        self.update(**chunk(words))

    def update(self, **update: Any) -> None:
        send({"method": "session/update", "params": {"sessionId": SESSION, "update": update}})

    def answer(self, message: Message, result: Any) -> None:
        send({"id": message["id"], "result": result})

    def fail(self, message: Message, error: Message) -> None:
        send({"id": message["id"], "error": error})


def text(words: str) -> Message:
    return {"type": "text", "text": words}


def chunk(words: str) -> Message:
    return {"sessionUpdate": "agent_message_chunk", "content": text(words)}


def option(name: str, kind: str) -> Message:
    return {"optionId": f"id-{name}", "name": name, "kind": kind}


def send(message: Message) -> None:
    out(json.dumps({"jsonrpc": "2.0", **message}))


def out(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(Agent(sys.argv[1]).run())
