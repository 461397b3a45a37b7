"""The script as OpenAI-compatible services say it: chat completions. Pure: a reply in, the service's JSON out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tests.modelserver.script import Call, Reply

Named = Callable[[Call, int], str]
"""The id of a call, and which one of its reply it is."""


def call_id(call: Call, at: int) -> str:
    """Always the same one."""
    return f"{call.name}:{at}"


def unique_id(call: Call, at: int) -> str:
    """Another one each time."""
    return f"call_{uuid.uuid4().hex[:20]}"


def error_body(reply: Reply) -> dict[str, Any]:
    """How the service says that it failed."""
    return {"error": {"message": reply.error, "type": "scripted"}}


def events(reply: Reply, piece: int, named: Named = call_id) -> Sequence[dict[str, Any]]:
    """The reply as OpenAI streams it: role, reasoning (as Moonshot does), text, calls in pieces by their index, the
    end, and the usage."""
    found = [_delta({"role": "assistant", "content": ""})]
    found += [_delta({"reasoning_content": reply.thoughts})] if reply.thoughts else []
    found += [_delta({"content": reply.text[at : at + 20]}) for at in range(0, len(reply.text), 20)]
    for index, call in enumerate(reply.calls):
        # Some services send an object, and that at once.
        at_once = isinstance(call.written, dict)
        function = {"name": call.name, "arguments": call.written if at_once else ""}
        head = {"index": index, "id": named(call, index), "type": "function", "function": function}
        found.append(_delta({"tool_calls": [head]}))
    arguments = ["" if isinstance(call.written, dict) else _arguments(call) for call in reply.calls]
    for at in range(0, max(map(len, arguments), default=0), piece):
        # Parallel calls, interleaved.
        for index, text in enumerate(arguments):
            if part := text[at : at + piece]:
                found.append(_delta({"tool_calls": [{"index": index, "function": {"arguments": part}}]}))
    found.append(_delta({}, "length" if reply.cut else "tool_calls" if reply.calls else "stop"))
    found.append({"id": "chatcmpl-1", "choices": [], "usage": usage(reply)})
    return found


def whole(reply: Reply, named: Named = call_id) -> dict[str, Any]:
    """The reply as one object."""
    calls = [
        {
            "id": named(call, at),
            "type": "function",
            "function": {"name": call.name, "arguments": _arguments(call)},
        }
        for at, call in enumerate(reply.calls)
    ]
    message = {"role": "assistant", "content": reply.text, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "choices": [choice], "usage": usage(reply)}


def usage(reply: Reply) -> dict[str, Any]:
    return {"prompt_tokens": reply.input_tokens, "completion_tokens": reply.output_tokens}


def _arguments(call: Call) -> str:
    return call.written if isinstance(call.written, str) and call.written else json.dumps(call.input)


def _delta(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
