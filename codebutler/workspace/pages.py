"""What the chat page and tests ask of the workspace beyond Slack's own API. All need a person's token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from codebutler.workspace import render
from codebutler.workspace.api import MAX_BODY_BYTES, bearer, read_body
from codebutler.workspace.calls import House
from codebutler.workspace.dialogs import Dialogs
from codebutler.workspace.interact import Interactions
from codebutler.workspace.manifest import Offers
from codebutler.workspace.panel import Panel
from codebutler.workspace.params import decoded
from codebutler.workspace.people import People
from codebutler.workspace.records import Json, MethodError, User
from codebutler.workspace.stream import Stream

_WEB = re.compile(r"https?://|mailto:", re.IGNORECASE)


@dataclass(frozen=True)
class Desks:
    """Who does what the page asks for."""

    interactions: Interactions
    dialogs: Dialogs
    people: People
    panel: Panel


class Pages:
    """The page's own endpoints."""

    def __init__(self, house: House, stream: Stream, desks: Desks, offers: Offers) -> None:
        self._house = house
        self._stream = stream
        self._desks = desks
        self._offers = offers

    async def boot(self, request: Request) -> Response:
        """Everything the page begins with."""
        me = self._person(bearer(request))
        workspace = self._house.workspace
        me.here_since = me.here_since or workspace.next_ts()
        users = [
            {"id": user.id, "name": user.name, "is_bot": user.is_bot} for user in workspace.users.values()
        ]
        return JSONResponse(
            {
                "team": {"name": workspace.team_name},
                "me": {"id": me.id, "name": me.name},
                "is_owner": me.id == workspace.person.id,
                "bot": {"user_id": workspace.bot.id, "name": workspace.bot.name},
                "users": users,
                "channels": [
                    {**render.conversation(channel, me), **render.unread(channel, me)}
                    for channel in workspace.channels.values()
                    if not channel.is_hidden or me.id in channel.members
                ],
                "statuses": self._statuses(),
                **msgspec.to_builtins(self._offers),
                **self._desks.dialogs.shown_to(me),
            }
        )

    def _statuses(self) -> list[Json]:
        now_s = self._house.workspace.clock.monotonic()
        return [
            {"channel": channel, "thread_ts": ts, "status": status.text, "lasts_s": status.until_s - now_s}
            for (channel, ts), status in self._house.statuses.items()
            if status.until_s > now_s
        ]

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
        acting = self._desks.dialogs.act if given.get("view_id") else self._desks.interactions.click
        return JSONResponse({"ok": True, **await acting(me, given)})

    async def submit(self, request: Request) -> Response:
        """A modal's Submit: the app is asked (view_submission), and what it makes of it is told."""
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **await self._desks.dialogs.submit(me, await _json(request))})

    async def close(self, request: Request) -> Response:
        """A modal is closed without Submit; the app hears of it where its view says notify_on_close."""
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **await self._desks.dialogs.close(me, await _json(request))})

    async def home(self, request: Request) -> Response:
        """The person looks at the app's home or its messages; the app is told so (app_home_opened)."""
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **self._desks.dialogs.open_home(me, await _json(request))})

    async def slash(self, request: Request) -> Response:
        """A slash command, typed by a person: the app's immediate answer, if it gives any."""
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **await self._desks.interactions.slash(me, await _json(request))})

    async def markdown(self, request: Request) -> Response:
        """Markdown as HTML for the page, safe to be shown."""
        self._person(bearer(request))
        given = await _json(request)
        return JSONResponse({"ok": True, "html": _html(str(given.get("markdown") or ""))})

    async def respond(self, request: Request) -> Response:
        """A response_url: the address itself is the credential."""
        try:
            self._desks.interactions.responses.respond(request.path_params["key"], await _json(request))
        except MethodError as refused:
            return JSONResponse({"ok": False, "error": refused.code}, 404)
        return Response("ok", media_type="text/plain")

    async def faults(self, request: Request) -> Response:
        """POST orders a fault, GET tells what is pending and how the app fares, DELETE takes orders back."""
        self._person(bearer(request))
        if request.method == "POST":
            self._desks.panel.order(await read_body(request, MAX_BODY_BYTES))
        elif request.method == "DELETE":
            self._desks.panel.clear()
        return JSONResponse({"ok": True, **self._desks.panel.state()})

    async def limits(self, request: Request) -> Response:
        """Whether calls over Slack's rate limits are refused from now on (``enforced``), or only counted."""
        self._person(bearer(request))
        self._desks.panel.enforce(on=bool((await _json(request)).get("enforced")))
        return JSONResponse({"ok": True, **self._desks.panel.state()})

    async def disconnect(self, request: Request) -> Response:
        """The app's sockets are told to go, or just cut: the body says how."""
        self._person(bearer(request))
        self._desks.panel.disconnect(await read_body(request, MAX_BODY_BYTES))
        return JSONResponse({"ok": True})

    async def suggest(self, request: Request) -> Response:
        """What a select fed by the app offers for the text typed so far (block_suggestion)."""
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **await self._desks.interactions.suggest(me, await _json(request))})

    async def shortcut(self, request: Request) -> Response:
        """A shortcut of the app, global or on a message."""
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **await self._desks.interactions.shortcut(me, await _json(request))})

    async def people(self, request: Request) -> Response:
        """The owner of the workspace lets one more person, or another app's bot, in."""
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **self._desks.people.invite(me, await _json(request))})

    async def become(self, request: Request) -> Response:
        """The token of somebody who is here, so that the owner's page can speak as them."""
        me = self._person(bearer(request))
        return JSONResponse({"ok": True, **self._desks.people.become(me, await _json(request))})

    def _person(self, token: str) -> User:
        """Raises MethodError invalid_auth for every token but a person's or a guest bot's."""
        user = self._house.workspace.by_token(token)
        if user is None or user.id == self._house.workspace.bot.id:
            raise MethodError("invalid_auth" if token else "not_authed")
        return user


async def _json(request: Request) -> Json:
    return decoded(await read_body(request, MAX_BODY_BYTES), Json)


def _html(markdown: str) -> str:
    """Markup in it is escaped, links go to http(s) and mailto only, none of them to a place in the page. A picture is a
    link: whoever posts one would learn who looks at it."""
    renderer = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    renderer.validateLink = lambda url: _WEB.match(url) is not None  # type: ignore[method-assign]  # its own way
    renderer.add_render_rule("image", _picture)
    return str(renderer.render(markdown))


def _picture(_: RendererHTML, tokens: Sequence[Token], at: int, __: OptionsDict, ___: dict[str, Any]) -> str:
    address, alt = escapeHtml(str(tokens[at].attrs["src"])), escapeHtml(tokens[at].content)
    return f'<a href="{address}">🖼 {alt or "picture"}</a>'
