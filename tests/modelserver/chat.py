"""The same script over the OpenAI-compatible chat completions API. Pure: a reply in, the service's JSON out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.modelserver.server import Reply

CHUNK = 2000


def error_body(reply: Reply) -> dict[str, Any]:
    """How the service says that it failed."""
    return {"error": {"message": reply.error, "type": "scripted", "code": str(reply.status)}}


def completion(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    """The whole answer at once."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = tool_calls(reply)
    choice = {"index": 0, "message": message, "finish_reason": finish(reply)}
    return {**_head(body, "chat.completion"), "choices": [choice], "usage": usage(reply)}


def chunks(body: dict[str, Any], reply: Reply) -> Sequence[dict[str, Any]]:
    """The answer as the service streams it; usage comes in a chunk of its own, without choices."""
    head = _head(body, "chat.completion.chunk")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": reply.text[at : at + CHUNK]} for at in range(0, len(reply.text), CHUNK)]
    for index, call in enumerate(tool_calls(reply)):
        given = call["function"]["arguments"]
        opening = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": given[at : at + CHUNK]}}]}
            for at in range(0, len(given), CHUNK)
        ]
    found = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    found.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish(reply)}]})
    found.append({**head, "choices": [], "usage": usage(reply)})
    return found


def tool_calls(reply: Reply) -> list[dict[str, Any]]:
    """The calls as the service names them."""
    return [
        {
            "id": f"call_{uuid.uuid4().hex[:20]}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.input)},
        }
        for call in reply.calls
    ]


def finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def usage(reply: Reply) -> dict[str, int]:
    """Tokens, as the service counts them."""
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }


def _head(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex[:20]}",
        "object": kind,
        "created": 1_700_000_000,
        "model": body.get("model"),
    }
