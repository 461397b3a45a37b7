"""The pure rules around a call: its arguments, Block Kit's limits, cursors, rate limits and faults on order."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from codebutler.workspace.api import Fault, Faults, RateLimits
from codebutler.workspace.blocks import checked_blocks, find_action
from codebutler.workspace.call import Params, make_cursor, page, parse_cursor, parse_params
from codebutler.workspace.state import MethodError
from tests.clock import ManualClock

FORM = "application/x-www-form-urlencoded"
JSON = "application/json; charset=utf-8"


@pytest.mark.parametrize(
    "params",
    [
        parse_params("", "limit=5&all=true&blocks=%5B%7B%22type%22%3A%22divider%22%7D%5D", b""),
        parse_params(
            FORM, "", urlencode({"limit": 5, "all": "1", "blocks": '[{"type":"divider"}]'}).encode()
        ),
        parse_params(
            JSON, "", msgspec.json.encode({"limit": 5, "all": True, "blocks": [{"type": "divider"}]})
        ),
    ],
    ids=["query", "form", "json"],
)
def test_arguments_mean_the_same_however_they_come(params: Params) -> None:
    assert params.number("limit", 100, 999) == 5
    assert params.flag("all") is True
    assert params.objects("blocks") == [{"type": "divider"}]
    assert params.objects("absent") is None


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        (JSON, b"{", "invalid_json"),
        (JSON, b"[1]", "json_not_object"),
        (FORM, b"\xff", "invalid_form_data"),
        ("text/plain", b"x", "invalid_post_type"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(kind: str, body: bytes, code: str) -> None:
    with pytest.raises(MethodError, match=code):
        parse_params(kind, "", body)


@pytest.mark.parametrize("value", ["{", "[1]", "7", {"a": 1}, [1]])
def test_blocks_must_be_a_list_of_objects(value: Any) -> None:
    with pytest.raises(MethodError, match="invalid_blocks_format"):
        Params({"blocks": value}).objects("blocks", "invalid_blocks_format")


def button(**fields: Any) -> dict[str, Any]:
    return {"type": "button", "action_id": "a", "text": {"type": "plain_text", "text": "A"}, **fields}


def test_blocks_get_ids_and_their_buttons_can_be_found() -> None:
    section = {"type": "section", "block_id": "own", "text": {"type": "mrkdwn", "text": "x"}}
    kept = checked_blocks(
        [{**section, "accessory": button(action_id="b")}, {"type": "actions", "elements": [button()]}]
    )
    assert [block["block_id"] for block in kept] == ["own", "b1"]
    assert (find_action(kept, "b") or {})["block_id"] == "own"
    assert (find_action(kept, "a", "b1") or {})["text"]["text"] == "A"
    assert find_action(kept, "a", "own") is None


@pytest.mark.parametrize(
    "block",
    [
        {},
        {"type": "section"},
        {"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3001}},
        {"type": "header", "text": {"type": "plain_text", "text": "x" * 151}},
        {"type": "actions", "elements": []},
        {"type": "actions", "elements": [button()] * 26},
        {"type": "actions", "elements": [button(value="x" * 2001)]},
        {"type": "actions", "elements": [button(action_id="x" * 256)]},
        {"type": "actions", "elements": [button(text={"type": "plain_text", "text": "x" * 76})]},
    ],
)
def test_blocks_beyond_slacks_limits_are_refused(block: dict[str, Any]) -> None:
    with pytest.raises(MethodError, match="invalid_blocks"):
        checked_blocks([block])


def test_pages_join_to_the_whole() -> None:
    items, cursor, seen = list(range(7)), "", []
    while True:
        part, cursor = page(items, Params({"limit": "3", "cursor": cursor}))
        seen += part
        if not cursor:
            break
    assert seen == items


@pytest.mark.parametrize("cursor", ["x", "bmV4dDo=", make_cursor("-1"), "ÿ"])
def test_an_invented_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(MethodError, match="invalid_cursor"):
        parse_cursor(cursor)


async def test_posting_is_limited_by_channel_and_recovers() -> None:
    clock = ManualClock()
    limits = RateLimits(clock)
    waits = [limits.wait_s("chat.postMessage", "C1") for _ in range(7)]
    assert waits == [0, 0, 0, 0, 0, 0, 1]
    assert limits.wait_s("chat.postMessage", "C2") == 0
    await clock.advance(1)
    assert limits.wait_s("chat.postMessage", "C1") == 0
    assert [limits.wait_s("users.list", "") > 0 for _ in range(21)] == [False] * 20 + [True]


def test_faults_happen_in_order_and_run_out() -> None:
    faults = Faults()
    faults.add(Fault(method="chat.update", kind="error", times=2))
    faults.add(Fault(method="*", kind="status"))
    met = [faults.take(method) for method in ("chat.update", "auth.test", "chat.update", "chat.update")]
    assert [fault and fault.kind for fault in met] == ["error", "status", "error", None]
    assert faults.pending() == ()


def test_people_are_spared_what_is_meant_for_the_app() -> None:
    faults = Faults()
    faults.add(Fault(method="chat.postMessage", kind="error", only_app=True))
    assert faults.take("chat.postMessage", by_app=False) is None
    assert faults.take("chat.postMessage") is not None
    faults.add(Fault(method="chat.postMessage", kind="error"))
    assert faults.take("chat.postMessage", by_app=False) is not None
