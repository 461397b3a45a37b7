"""What the chat page and tests ask of the workspace beyond Slack's own API. All need a person's token."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec
from markdown_it import MarkdownIt
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from codebutler.workspace.api import MAX_BODY_BYTES, bearer, read_body
from codebutler.workspace.calls import House
from codebutler.workspace.dialogs import Dialogs
from codebutler.workspace.faults import Fault, Faults
from codebutler.workspace.interact import Interactions
from codebutler.workspace.state import Json, MethodError, User
from codebutler.workspace.stream import Stream

T = TypeVar("T")


class Goodbye(msgspec.Struct, forbid_unknown_fields=True):
    """How the app's connections end; ``drop`` cuts them without a word, ``deafen`` lets them live on without
    an event."""

    reason: Literal["warning", "refresh_requested", "link_disabled", "too_many_websockets", "drop", "deafen"]


class Pages:
    """The page's own endpoints. ``suggestions`` are first messages the empty channel offers."""

    def __init__(
        self,
        house: House,
        stream: Stream,
        faults: Faults,
        interactions: Interactions,
        dialogs: Dialogs,
        suggestions: tuple[str, ...] = (),
    ) -> None:
        self._house = house
        self._stream = stream
        self._faults = faults
        self._suggestions = suggestions
        self._interactions = interactions
        self._dialogs = dialogs

    async def boot(self, request: Request) -> Response:
        me = self._person(bearer(request))
        workspace = self._house.workspace
        return JSONResponse(
            {
                "team": {"name": workspace.team_name},
                "me": {"id": me.id, "name": me.name},
                "bot": {"user_id": workspace.bot.id, "name": workspace.bot.name},
                "users": [
                    {"id": user.id, "name": user.name, "is_bot": user.is_bot}
                    for user in workspace.users.values()
                ],
                "channels": [
                    {"id": channel.id, "name": channel.name, "topic": channel.topic}
                    for channel in workspace.channels.values()
                    if not channel.is_im
                ],
                "suggestions": list(self._suggestions),
                **self._dialogs.shown_to(me),
            }
        )

    async def follow(self, request: Request) -> Response:
        """Server-Sent Events. EventSource cannot send a header, so the token may come in the query."""
        me = self._person(bearer(request) or request.query_params.get("token", ""))
        last_id = request.headers.get("last-event-id", "")
        after = int(last_id) if last_id.isdecimal() else None
        return StreamingResponse(
            self._stream.follow(me.id, after),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def click(self, request: Request) -> Response:
        """Press or choose something in a message or, with a view_id, in a modal or the home."""
        me = self._person(bearer(request))
        given = await _json(request)
        acting = self._dialogs.act if given.get("view_id") else self._interactions.click
        return JSONResponse({"ok": True, **await acting(me, given)})

    async def submit(self, request: Request) -> Response:
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **await self._dialogs.submit(me, await _json(request))})

    async def close(self, request: Request) -> Response:
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **await self._dialogs.close(me, await _json(request))})

    async def home(self, request: Request) -> Response:
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **self._dialogs.open_home(me, await _json(request))})

    async def slash(self, request: Request) -> Response:
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **await self._interactions.slash(me, await _json(request))})

    async def render(self, request: Request) -> Response:
        """Markdown as HTML for the page: markup in it is escaped, links go to http(s) and mailto only."""
        self._person(bearer(request))
        given = await _json(request)
        renderer = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
        return JSONResponse({"ok": True, "html": renderer.render(str(given.get("markdown") or ""))})

    async def respond(self, request: Request) -> Response:
        """A response_url: the address itself is the credential."""
        try:
            self._interactions.respond(request.path_params["key"], await _json(request))
        except MethodError as refused:
            return JSONResponse({"ok": False, "error": refused.code}, 404)
        return Response("ok", media_type="text/plain")

    async def faults(self, request: Request) -> Response:
        """POST orders a fault, GET tells what is pending, DELETE takes all orders back."""
        self._person(bearer(request))
        if request.method == "POST":
            self._faults.add(_decoded(await read_body(request, MAX_BODY_BYTES), Fault))
        elif request.method == "DELETE":
            self._faults.clear()
        return JSONResponse({"ok": True, "faults": msgspec.to_builtins(self._faults.pending())})

    async def disconnect(self, request: Request) -> Response:
        self._person(bearer(request))
        reason = _decoded(await read_body(request, MAX_BODY_BYTES), Goodbye).reason
        if reason == "drop":
            self._house.hub.drop()
        elif reason == "deafen":
            self._house.hub.deafen()
        else:
            self._house.hub.disconnect(reason)
        return JSONResponse({"ok": True})

    def _person(self, token: str) -> User:
        """Raises MethodError invalid_auth for every token but a person's."""
        user = self._house.workspace.by_token(token)
        if user is None or user.is_bot:
            raise MethodError("invalid_auth" if token else "not_authed")
        return user


async def _json(request: Request) -> Json:
    return _decoded(await read_body(request, MAX_BODY_BYTES), Json)


def _decoded(body: bytes, kind: type[T]) -> T:
    """Raises MethodError invalid_arguments, saying what was expected where."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise MethodError("invalid_arguments", (str(error),)) from None
