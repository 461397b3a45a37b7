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
from codebutler.workspace.api import MAX_BODY_BYTES, Disconnect, Fault, WebApi, bearer_token, read_body
from codebutler.workspace.call import WorkspaceContext, decode_body
from codebutler.workspace.events import Stream
from codebutler.workspace.interact import Dialogs, Interactions
from codebutler.workspace.manifest import Offers
from codebutler.workspace.state import Json, MethodError, User

_WEB = re.compile(r"https?://|mailto:", re.IGNORECASE)
NAME = re.compile(r"[\w][\w .'-]{0,39}")


class Pages:
    """The page's own endpoints. ``actions`` are those that take JSON from a user, by the ends of their URLs."""

    def __init__(
        self, context: WorkspaceContext, stream: Stream, people: UserManager, api: WebApi, offers: Offers
    ) -> None:
        self._context = context
        self._stream = stream
        self._faults, self._limits = api.faults, api.limits
        self._offers = offers
        self.dialogs = dialogs = Dialogs(context)
        self.interactions = interactions = Interactions(context)
        self.actions: dict[str, Callable[[User, Json], Awaitable[Json]]] = {
            "click": self._click,
            "submit": dialogs.submit,
            "close": dialogs.close,
            "home": self._open_home,
            "slash": interactions.slash,
            "suggest": interactions.suggest,
            "shortcut": interactions.shortcut,
            "people": people.invite,
            "become": people.become,
        }

    async def boot(self, request: Request) -> Response:
        """Everything the page needs at startup."""
        me = self._require_person(bearer_token(request))
        workspace = self._context.workspace
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
                **self.dialogs.views_of(me),
            }
        )

    def _statuses(self) -> list[Json]:
        now_s = self._context.workspace.clock.monotonic()
        return [
            {"channel": channel, "thread_ts": ts, "status": status.text, "lasts_s": status.until_s - now_s}
            for (channel, ts), status in self._context.statuses.items()
            if status.until_s > now_s
        ]

    async def follow(self, request: Request) -> Response:
        """Server-Sent Events. EventSource cannot send a header, so the token may come in the query."""
        me = self._require_person(bearer_token(request) or request.query_params.get("token", ""))
        last_id = request.headers.get("last-event-id", "")
        after = int(last_id) if last_id.isdecimal() else None
        return StreamingResponse(
            self._stream.follow(me.id, after),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def perform(self, request: Request) -> Response:
        """A user calls one of ``actions``; its result is the response."""
        me = self._require_person(bearer_token(request))
        act = self.actions[request.url.path.rpartition("/")[2]]
        return JSONResponse({"ok": True, **await act(me, await _json(request))})

    async def _click(self, me: User, body: Json) -> Json:
        """Press or choose something in a message or, with a view_id, in a modal or home tab."""
        press = self.dialogs.act if body.get("view_id") else self.interactions.click
        return await press(me, body)

    async def _open_home(self, me: User, body: Json) -> Json:
        """The user opens the app's home or its messages; the app is notified (app_home_opened)."""
        return self.dialogs.open_home(me, body)

    async def markdown(self, request: Request) -> Response:
        """Markdown as HTML, safe for the page."""
        self._require_person(bearer_token(request))
        body = await _json(request)
        return JSONResponse({"ok": True, "html": _render_markdown(str(body.get("markdown") or ""))})

    async def respond(self, request: Request) -> Response:
        """A response_url: the URL itself is the credential."""
        try:
            self.interactions.responses.respond(request.path_params["key"], await _json(request))
        except MethodError as error:
            return JSONResponse({"ok": False, "error": error.code}, 404)
        return Response("ok", media_type="text/plain")

    async def faults(self, request: Request) -> Response:
        """POST injects a fault, GET shows pending faults and the app's figures, DELETE clears faults."""
        self._require_person(bearer_token(request))
        if request.method == "POST":
            self._faults.add(decode_body(await read_body(request, MAX_BODY_BYTES), Fault))
        elif request.method == "DELETE":
            self._faults.clear()
        return self._figures_response()

    async def limits(self, request: Request) -> Response:
        """Whether calls over Slack's rate limits are refused from now on (``enforced``) or only counted."""
        self._require_person(bearer_token(request))
        self._limits.enforced = bool((await _json(request)).get("enforced"))
        return self._figures_response()

    async def disconnect(self, request: Request) -> Response:
        """Ends the app's connections in one of Slack's ways, or worse: the body says which."""
        self._require_person(bearer_token(request))
        reason = decode_body(await read_body(request, MAX_BODY_BYTES), Disconnect).reason
        hub = self._context.hub
        if reason == "drop":
            hub.connections.drop()
        elif reason == "deafen":
            hub.connections.deafen()
        else:
            hub.disconnect(reason)
        return JSONResponse({"ok": True})

    def _figures_response(self) -> Response:
        """Pending ``faults``, the socket's figures, and how often the app exceeded Slack's limits."""
        hub, limits = self._context.hub, self._limits
        figures = {
            "faults": msgspec.to_builtins(self._faults.pending()),
            "connections": len(hub.connections),
            "pending": hub.pending,
            "counts": msgspec.to_builtins(hub.counts),
            "limits": {"enforced": limits.enforced, "violations": dict(limits.violations)},
        }
        return JSONResponse({"ok": True, **figures})

    def _require_person(self, token: str) -> User:
        """Raises MethodError invalid_auth for every token except a person's or a guest bot's."""
        user = self._context.workspace.by_token(token)
        if user is None or user.id == self._context.workspace.bot.id:
            raise MethodError("invalid_auth" if token else "not_authed")
        return user


async def _json(request: Request) -> Json:
    return decode_body(await read_body(request, MAX_BODY_BYTES), Json)


def _render_markdown(markdown: str) -> str:
    """Escapes markup; links may lead only to http(s) and mailto, not into the page. Pictures become links, so that
    posting one does not reveal who sees it."""
    renderer = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    renderer.validateLink = lambda url: _WEB.match(url) is not None  # type: ignore[method-assign]  # its own way
    renderer.add_render_rule("image", _render_image)
    return str(renderer.render(markdown))


def _render_image(
    _: RendererHTML, tokens: Sequence[Token], at: int, __: OptionsDict, ___: dict[str, Any]
) -> str:
    address, alt = escapeHtml(str(tokens[at].attrs["src"])), escapeHtml(tokens[at].content)
    return f'<a href="{address}">🖼 {alt or "picture"}</a>'


class UserManager:
    """New people and other apps' bots, and their tokens; only the workspace's owner may use it."""

    def __init__(self, context: WorkspaceContext) -> None:
        self._context = context
        self._workspace = context.workspace

    def add(self, name: str, *, is_bot: bool = False, notify: bool = True) -> User:
        """Add a user, as a member of every channel; ``notify``: notify the others. Raises MethodError invalid_name,
        name_taken."""
        if not NAME.fullmatch(name):
            raise MethodError("invalid_name")
        if any(user.name.lower() == name.lower() for user in self._workspace.users.values()):
            raise MethodError("name_taken")
        kind = "xoxb" if is_bot else "xoxp"
        user = self._workspace.add_user(name, f"{kind}-{secrets.token_hex(20)}", is_bot=is_bot)
        if notify:
            self._context.announcer.team_joined(user)
        return user

    async def invite(self, by: User, body: Json) -> Json:
        """Raises MethodError not_allowed for everybody except the owner, invalid_name, name_taken."""
        self._require_owner(by)
        user = self.add(str(body.get("name") or "").strip(), is_bot=bool(body.get("is_bot")))
        return {"user": render.person(user)}

    async def become(self, by: User, body: Json) -> Json:
        """Another user's token, never the app's. Raises MethodError not_allowed, user_not_found."""
        self._require_owner(by)
        user = self._workspace.user(str(body.get("user") or ""))
        if user.id == self._workspace.bot.id:
            raise MethodError("not_allowed")
        return {"token": user.token}

    def _require_owner(self, by: User) -> None:
        if by.id != self._workspace.person.id:
            raise MethodError("not_allowed")
