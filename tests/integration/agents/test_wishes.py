"""The MCP server that agents start inside their sandbox: whatever it is sent, it only answers."""

from __future__ import annotations

import json
import subprocess

import pytest

from codebutler_worker.agents.backend import Approval
from codebutler_worker.agents.push_server import ALLOWED, needs_nobody, server
from codebutler_worker.tools.talking import PUSH_ASKED, is_push_request
from tests.programs import require


def answers(*lines: str) -> list[dict[str, object]]:
    require("perl")
    said = "".join(f"{line}\n" for line in lines)
    ended = subprocess.run(server(), input=said, capture_output=True, text=True, check=True, timeout=30)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_it_offers_one_tool_that_only_answers() -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    call = {"name": "ask_to_push", "arguments": {"why": '"id": 7, "method":"initialize"} \\\\" {['}}
    asked = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"method": "tools/list", "jsonrpc": "2.0", "id": "two", "params": {}},
        {"params": call, "jsonrpc": "2.0", "method": "tools/call", "id": 3},
        {"jsonrpc": "2.0", "id": 4, "method": "ping"},
    ]
    first, tools, called, ping = answers(*map(json.dumps, asked))
    assert first["id"] == 0
    assert first["result"]["protocolVersion"] == "2025-06-18"  # type: ignore[index]  # JSON
    assert tools["id"] == "two"
    assert [tool["name"] for tool in tools["result"]["tools"]] == ["ask_to_push"]  # type: ignore[index]  # JSON
    assert called == {
        "jsonrpc": "2.0",
        "id": 3,
        "result": {"content": [{"type": "text", "text": PUSH_ASKED}]},
    }
    assert ping == {"jsonrpc": "2.0", "id": 4, "result": {}}


@pytest.mark.parametrize("line", ["", "{", "[]", "null", '{"id":', '{"id":1', "{" * 300, '"' * 3, "\x00\xff"])
def test_what_is_no_request_ends_nothing(line: str) -> None:
    assert answers(line, '{"jsonrpc": "2.0", "id": 9, "method": "ping"}')[-1]["id"] == 9


def test_only_the_tool_itself_needs_no_approval() -> None:
    why = {"why": "ready"}
    assert needs_nobody(Approval("1", ALLOWED, "", why))
    for tool, given in (
        (ALLOWED, {"command": "rm -r ."}),
        (ALLOWED, {**why, "command": "rm -r ."}),
        (ALLOWED, {"request": ALLOWED}),
        (ALLOWED, {}),
        ("mcp__other__ask_to_push", why),
        ("Bash", why),
    ):
        assert not needs_nobody(Approval("1", tool, "", given))


@pytest.mark.parametrize(
    ("tool", "is_one"),
    [
        ("ask_to_push", True),
        (ALLOWED, True),
        ("codebutler_ask_to_push", True),
        ("codebutler/ask_to_push", True),
        ("ask_to_push_later", False),
        ("Bash", False),
    ],
)
def test_each_agents_name_for_it_is_known(tool: str, is_one: bool) -> None:
    assert is_push_request(tool) == is_one
