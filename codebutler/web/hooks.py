"""``POST /hooks/<name>``: authenticated, bounded, and only where a hook is configured."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import msgspec

from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, StoreError
from codebutler.intake.intake import Outcome
from codebutler.schedule.jobs import Hook

if TYPE_CHECKING:
    from starlette.types import ASGIApp

MAX_BODY_BYTES = 2**20
PER_MINUTE = 30
BODY_S = 30.0
"""A caller that sends its body more slowly is let go: whoever may connect could keep us busy."""

log = logging.getLogger("codebutler.web")


class Callee(Protocol):
    """The schedule."""

    hooks: Mapping[str, Hook]

    async def called(self, hook: Hook, body: object, key: str) -> Outcome:
        """Carry a call out once for each ``key``; what became of it. Raises ChatError, StoreError."""


class Hooks:
    """What answers when a hook is called."""

    def __init__(self, callee: Callee, clock: Clock, *, body_s: float = BODY_S) -> None:
        self._callee = callee
        self._clock = clock
        self._body_s = body_s
        self._calls: dict[str, list[float]] = {}

    async def call(self, name: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """(HTTP status, one line). Who does not know the secret cannot tell which hooks there are."""
        hook = self._callee.hooks.get(name)
        if hook is None or not hook.admits(body, headers):
            return 401, "no such hook, or the wrong secret"
        if not self._may(name):
            return 429, f"more than {PER_MINUTE} calls in a minute"
        key = hook.key(headers)
        try:
            outcome = await self._callee.called(hook, _decoded(body), key or uuid4().hex)
        except (ChatError, StoreError) as error:
            log.warning("the hook %s could not be carried out: %s", name, error)
            return 503, "it could not be carried out now: try again"
        match outcome:
            case "duplicate" if "x-hub-signature-256" in headers:
                return (
                    409,
                    "this body came before, and nothing is done twice: sign one that says when it is from",
                )
            case "refused" | "ignored":
                return 403, "authorization.rules of this repository do not allow it"
        return 202, "accepted"

    def _may(self, name: str) -> bool:
        now_s = self._clock.monotonic()
        recent = [at_s for at_s in self._calls.get(name, []) if now_s - at_s < 60]
        self._calls[name] = recent if len(recent) >= PER_MINUTE else [*recent, now_s]
        return len(recent) < PER_MINUTE

    def app(self) -> ASGIApp:
        """To be mounted at ``/hooks``."""
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse, Response
        from starlette.routing import Route

        from codebutler.platform.http.body import read_body

        async def post(request: Request) -> Response:
            body = await read_body(request, MAX_BODY_BYTES, self._body_s)
            if isinstance(body, Response):
                return body
            status, line = await self.call(request.path_params["name"], request.headers, body)
            return PlainTextResponse(f"{line}\n", status)

        return Starlette(routes=[Route("/{name}", post, methods=["POST"])])


def _decoded(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode(errors="replace")
