"""The tests' own model service on loopback, answering from a script: the Anthropic Messages API, and chat completions
as OpenAI-compatible services have them (``<url>/v1``).

Every request that offers tools takes the next Reply of the script; others (titles, counts) get a fixed one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from tests.modelserver import chat
from tests.modelserver.script import Call, Reply, Scripted, bearer

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
CHUNK = 2000

__all__ = ["Call", "ModelServer", "Reply"]


class ModelServer(Scripted):
    """Both services at once."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/messages/count_tokens", self._count)
        app.router.add_post("/v1/chat/completions", self._completions)
        return app

    def said(self, index: int = -1) -> str:
        """Everything request ``index`` told the model, as one JSON text."""
        return json.dumps(self.requests[index], ensure_ascii=False)

    async def _count(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"input_tokens": len(await request.read()) // 4})

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        reply = await self._next(body, request.headers.get("x-api-key", ""))
        if reply.status != 200:
            kind = ERROR_TYPES.get(reply.status, "api_error")
            error = {"type": "error", "error": {"type": kind, "message": reply.error}}
            return web.json_response(error, status=reply.status, headers=dict(reply.headers))
        if not body.get("stream"):
            return web.json_response(message(body, reply) | {"content": blocks(reply)})
        return await self._stream(request, body, reply)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        reply = await self._next(body, bearer(request))
        if reply.status != 200:
            return web.json_response(chat.error_body(reply), status=reply.status, headers=dict(reply.headers))
        if not body.get("stream"):
            return web.json_response(chat.whole(reply, chat.unique_id))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            for number, chunk in enumerate(chat.events(reply, CHUNK, chat.unique_id)):
                await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
                if reply.hold and number == 1:
                    await self.release.wait()
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        except ConnectionResetError:
            pass  # the client was killed: that is what some tests are about
        return response

    async def _next(self, body: dict[str, Any], key: str) -> Reply:
        if not body.get("tools"):
            return Reply("ok")
        return await self.next(body, key)

    async def _stream(self, request: web.Request, body: dict[str, Any], reply: Reply) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            for number, event in enumerate(events(body, reply)):
                await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                if reply.hold and number == 1:
                    await self.release.wait()
            await response.write_eof()
        except ConnectionResetError:
            pass  # the client was killed: that is what some tests are about
        return response


def blocks(reply: Reply) -> list[dict[str, Any]]:
    """The reply's content blocks."""
    found: list[dict[str, Any]] = []
    if reply.thoughts:
        found.append({"type": "thinking", "thinking": reply.thoughts, "signature": "c2lnbmVk"})
    if reply.text:
        found.append({"type": "text", "text": reply.text})
    found.extend(
        {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:20]}", "name": call.name, "input": call.input}
        for call in reply.calls
    )
    return found


def message(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    """The message object without its content."""
    return {
        "id": f"msg_{uuid.uuid4().hex[:20]}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.input_tokens,
            "output_tokens": reply.output_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def streamed(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """How a block begins, and how it grows."""
    match block["type"]:
        case "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            grown = [{"type": "thinking_delta", "thinking": part} for part in pieces(block["thinking"])]
            return {**block, "thinking": "", "signature": ""}, [*grown, signed]
        case "text":
            grown = [{"type": "text_delta", "text": part} for part in pieces(block["text"])]
            return {**block, "text": ""}, grown
    given = pieces(json.dumps(block["input"]))
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in given]


def pieces(text: str) -> list[str]:
    """As the service cuts it."""
    return [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]


def events(body: dict[str, Any], reply: Reply) -> Sequence[dict[str, Any]]:
    """The reply as the service streams it."""
    start = message(body, reply) | {"stop_reason": None}
    found: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(blocks(reply)):
        empty, deltas = streamed(block)
        found.append({"type": "content_block_start", "index": index, "content_block": empty})
        found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        found.append({"type": "content_block_stop", "index": index})
    stop = "max_tokens" if reply.cut else "tool_use" if reply.calls else "end_turn"
    usage = {"output_tokens": reply.output_tokens}
    found.append(
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
    )
    found.append({"type": "message_stop"})
    return found
