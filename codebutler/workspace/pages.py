"""The endpoints for the chat page and tests, beyond Slack's own API; and whom the page may act as. All need a user
token."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
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
from codebutler.workspace.api import MAX_BODY_BYTES, Disconnect, Fault, WebApi, bearer, read_body
from codebutler.workspace.connections import Stream
from codebutler.workspace.interact import Dialogs, Interactions
from codebutler.workspace.manifest import Offers
from codebutler.workspace.params import decoded
from codebutler.workspace.responses import House
from codebutler.workspace.state import Json, MethodError, User

_WEB = re.compile(r"https?://|mailto:", re.IGNORECASE)
NAME = re.compile(r"[\w][\w .'-]{0,39}")


class Pages:
    """The page's own endpoints. ``acts`` are those that take JSON from a user, by the ends of their URLs."""

    def __init__(self, house: House, stream: Stream, people: Newcomers, api: WebApi, offers: Offers) -> None:
        self._house = house
        self._stream = stream
        self._faults, self._limits = api.faults, api.limits
        self._offers = offers
        self.dialogs = dialogs = Dialogs(house)
        self.interactions = interactions = Interactions(house)
        self.acts: dict[str, Callable[[User, Json], Awaitable[Json]]] = {
            "click": self._click,
            "submit": dialogs.submit,
            "close": dialogs.close,
            "home": self._look_at_home,
            "slash": interactions.slash,
            "suggest": interactions.suggest,
            "shortcut": interactions.shortcut,
            "people": people.invite,
            "become": people.become,
        }

    async def boot(self, request: Request) -> Response:
        """Everything the page needs at startup."""
        me = self._person(bearer(request))
        workspace = self._house.workspace
        me.here_since = me.here_since or workspace.next_ts()
        return JSONResponse(
            {
                "team": {"name": workspace.team_name},
                "me": {"id": me.id, "name": me.name},
                "is_owner": me.id == workspace.person.id,
                "bot": {"user_id": workspace.bot.id, "name": workspace.bot.name},
                "users": [render.person(user) for user in workspace.users.values()],
                "channels": [
                    {**render.conversation(channel, me), **render.unread(channel, me)}
                    for channel in workspace.channels.values()
                    if not channel.is_hidden or me.id in channel.members
                ],
                "statuses": self._statuses(),
                **msgspec.to_builtins(self._offers),
                **self.dialogs.shown_to(me),
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

    async def act(self, request: Request) -> Response:
        """A user calls one of ``acts``; its result is the response."""
        me = self._person(bearer(request))
        act = self.acts[request.url.path.rpartition("/")[2]]
        return JSONResponse({"ok": True, **await act(me, await _json(request))})

    async def _click(self, me: User, given: Json) -> Json:
        """Press or choose something in a message or, with a view_id, in a modal or home tab."""
        acting = self.dialogs.act if given.get("view_id") else self.interactions.click
        return await acting(me, given)

    async def _look_at_home(self, me: User, given: Json) -> Json:
        """The user opens the app's home or its messages; the app is notified (app_home_opened)."""
        return self.dialogs.open_home(me, given)

    async def markdown(self, request: Request) -> Response:
        """Markdown as HTML, safe for the page."""
        self._person(bearer(request))
        given = await _json(request)
        return JSONResponse({"ok": True, "html": _html(str(given.get("markdown") or ""))})

    async def respond(self, request: Request) -> Response:
        """A response_url: the URL itself is the credential."""
        try:
            self.interactions.responses.respond(request.path_params["key"], await _json(request))
        except MethodError as refused:
            return JSONResponse({"ok": False, "error": refused.code}, 404)
        return Response("ok", media_type="text/plain")

    async def faults(self, request: Request) -> Response:
        """POST injects a fault, GET shows pending faults and the app's figures, DELETE clears faults."""
        self._person(bearer(request))
        if request.method == "POST":
            self._faults.add(decoded(await read_body(request, MAX_BODY_BYTES), Fault))
        elif request.method == "DELETE":
            self._faults.clear()
        return self._figures()

    async def limits(self, request: Request) -> Response:
        """Whether calls over Slack's rate limits are refused from now on (``enforced``) or only counted."""
        self._person(bearer(request))
        self._limits.enforced = bool((await _json(request)).get("enforced"))
        return self._figures()

    async def disconnect(self, request: Request) -> Response:
        """Ends the app's connections in one of Slack's ways, or worse: the body says which."""
        self._person(bearer(request))
        reason = decoded(await read_body(request, MAX_BODY_BYTES), Disconnect).reason
        hub = self._house.hub
        if reason == "drop":
            hub.connections.drop()
        elif reason == "deafen":
            hub.connections.deafen()
        else:
            hub.disconnect(reason)
        return JSONResponse({"ok": True})

    def _figures(self) -> Response:
        """Pending ``faults``, the socket's figures, and how often the app exceeded Slack's limits."""
        hub, limits = self._house.hub, self._limits
        told = {
            "faults": msgspec.to_builtins(self._faults.pending()),
            "connections": len(hub.connections),
            "pending": hub.pending,
            "counts": msgspec.to_builtins(hub.counts),
            "limits": {"enforced": limits.enforced, "violations": dict(limits.violations)},
        }
        return JSONResponse({"ok": True, **told})

    def _person(self, token: str) -> User:
        """Raises MethodError invalid_auth for every token except a person's or a guest bot's."""
        user = self._house.workspace.by_token(token)
        if user is None or user.id == self._house.workspace.bot.id:
            raise MethodError("invalid_auth" if token else "not_authed")
        return user


async def _json(request: Request) -> Json:
    return decoded(await read_body(request, MAX_BODY_BYTES), Json)


def _html(markdown: str) -> str:
    """Escapes markup; links may lead only to http(s) and mailto, not into the page. Pictures become links, so that
    posting one does not reveal who sees it."""
    renderer = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    renderer.validateLink = lambda url: _WEB.match(url) is not None  # type: ignore[method-assign]  # its own way
    renderer.add_render_rule("image", _picture)
    return str(renderer.render(markdown))


def _picture(_: RendererHTML, tokens: Sequence[Token], at: int, __: OptionsDict, ___: dict[str, Any]) -> str:
    address, alt = escapeHtml(str(tokens[at].attrs["src"])), escapeHtml(tokens[at].content)
    return f'<a href="{address}">🖼 {alt or "picture"}</a>'


class Newcomers:
    """New people and other apps' bots, and their tokens; only the workspace's owner may use it."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._workspace = house.workspace

    def add(self, name: str, *, is_bot: bool = False, is_news: bool = True) -> User:
        """Add a user, as a member of every channel; ``is_news``: notify the others. Raises MethodError invalid_name,
        name_taken."""
        if not NAME.fullmatch(name):
            raise MethodError("invalid_name")
        if any(user.name.lower() == name.lower() for user in self._workspace.users.values()):
            raise MethodError("name_taken")
        kind = "xoxb" if is_bot else "xoxp"
        user = self._workspace.add_user(name, f"{kind}-{secrets.token_hex(20)}", is_bot=is_bot)
        if is_news:
            self._house.announcer.joined_team(user)
        return user

    async def invite(self, by: User, given: Json) -> Json:
        """Raises MethodError not_allowed for everybody except the owner, invalid_name, name_taken."""
        self._only_owner(by)
        user = self.add(str(given.get("name") or "").strip(), is_bot=bool(given.get("is_bot")))
        return {"user": render.person(user)}

    async def become(self, by: User, given: Json) -> Json:
        """Another user's token, never the app's. Raises MethodError not_allowed, user_not_found."""
        self._only_owner(by)
        user = self._workspace.user(str(given.get("user") or ""))
        if user.id == self._workspace.bot.id:
            raise MethodError("not_allowed")
        return {"token": user.token}

    def _only_owner(self, by: User) -> None:
        if by.id != self._workspace.person.id:
            raise MethodError("not_allowed")
