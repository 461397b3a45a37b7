"""A scripted Slack Web API on this machine: answers are data, calls are recorded."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs

BOT_TOKEN = "xoxb-1-2-thebottoken"
APP_TOKEN = "xapp-1-A1-theapptoken"
CHANNELS = {
    "C0GENERAL": {"id": "C0GENERAL", "name": "general", "is_member": False},
    "C0MINE000": {"id": "C0MINE000", "name": "mine", "is_member": True},
    "C0OLD0000": {"id": "C0OLD0000", "name": "old", "is_archived": True},
    "G0PRIVATE": {"id": "G0PRIVATE", "name": "private", "is_private": True, "is_member": False},
}
PEOPLE: dict[str, dict[str, Any]] = {
    "U0123ABC": {
        "id": "U0123ABC",
        "name": "ada",
        "profile": {"real_name": "Ada", "email": "ada@example.com"},
    },
    "U0456DEF": {"id": "U0456DEF", "name": "bob", "profile": {"real_name": "Bob"}},
    "U0789GHI": {"id": "U0789GHI", "name": "gone", "deleted": True},
}


@dataclass
class SlackServer:
    """Serves while entered. ``failures`` maps a method to the error it answers with."""

    failures: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> SlackServer:
        self._http = _Http(self)
        self.url = f"http://127.0.0.1:{self._http.server_port}/api/"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def methods(self) -> list[str]:
        """The names of the methods called so far, in order."""
        return [method for method, _ in self.calls]

    def answer(self, method: str, token: str, arguments: dict[str, str]) -> dict[str, Any]:
        self.calls.append((method, arguments))
        expected = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if token != expected:
            return {"ok": False, "error": "invalid_auth"}
        if method in self.failures:
            return {"ok": False, "error": self.failures[method]}
        return {"ok": True, **self._result(method, arguments)}

    def _result(self, method: str, arguments: dict[str, str]) -> dict[str, Any]:
        if method == "auth.test":
            return {
                "team": "Testers",
                "team_id": "T1",
                "user_id": "U0BOT",
                "bot_id": "B1",
                "url": "https://t/",
            }
        if method == "apps.connections.open":
            return {"url": "wss://127.0.0.1/ticket"}
        if method == "conversations.list":
            return {"channels": [c for c in CHANNELS.values() if not c.get("is_archived")]}
        if method == "conversations.create":
            return {"channel": {"id": "C0NEW0000", "name": arguments["name"], "is_member": True}}
        if method == "users.list":
            return {"members": list(PEOPLE.values())}
        if method.startswith("users."):
            mail = arguments.get("email", "")
            found = [p for p in PEOPLE.values() if mail and p.get("profile", {}).get("email") == mail]
            user = found[0] if found else PEOPLE.get(arguments.get("user", ""))
            return {"user": user} if user else {"ok": False, "error": "user_not_found"}
        if method in ("conversations.invite", "conversations.setTopic", "conversations.setPurpose"):
            return {}
        channel = CHANNELS.get(arguments.get("channel", ""))
        return {"channel": channel} if channel else {"ok": False, "error": "channel_not_found"}


class _Http(ThreadingHTTPServer):
    def __init__(self, slack: SlackServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.slack = slack


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, _Http)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        arguments = {name: values[0] for name, values in parse_qs(body).items()}
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        answer = self.server.slack.answer(self.path.rsplit("/", 1)[1], token, arguments)
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as http.server names it
        """Quiet."""
