"""WorkspaceServer: the embedded workspace, a Starlette application running in the current event loop while it
is entered."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Self, TypeVar

from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.http import listen
from codebutler.platform.http_server import serving
from codebutler.workspace import render
from codebutler.workspace.api import Faults, LoopbackGuard, RateLimits, WebApi, error_body, transport_of
from codebutler.workspace.call import Call, Params, WorkspaceContext
from codebutler.workspace.connections import Signal
from codebutler.workspace.events import Announcer, EphemeralMessages, Stream
from codebutler.workspace.manifest import AppCommand, Offers, Subscriptions
from codebutler.workspace.methods import METHODS
from codebutler.workspace.pages import Pages, UserManager
from codebutler.workspace.socket import Hub, Timing
from codebutler.workspace.state import Json, MethodError, Tokens, User, Workspace

T = TypeVar("T")

HOST = "127.0.0.1"
PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class Options(Struct, frozen=True, kw_only=True):
    """The settings of a workspace. ``port`` 0 = any free one; ``tokens`` None = new ones. ``with_limits`` enforces
    Slack's rate limits. ``guests`` and ``guest_bots`` are people besides "you" and other apps' bots, by name.
    ``offers`` is what the page suggests to users. ``subscriptions`` selects the events that the app receives."""

    channels: tuple[str, ...] = ("general",)
    port: int = 0
    tokens: Tokens | None = None
    timing: Timing = Timing()
    with_limits: bool = False
    guests: tuple[str, ...] = ()
    guest_bots: tuple[str, ...] = ()
    offers: Offers = Offers(commands=(AppCommand(command="/butler"),))
    subscriptions: Subscriptions = Subscriptions()


class WorkspaceServer:
    """A Slack-compatible workspace on loopback.

    Creating it raises CodeButlerError for an invalid guest name, entering it if the port is taken. ``signal`` is
    notified of every event, ack and connection: ``until`` waits for a condition.
    """

    def __init__(self, options: Options | None = None, clock: Clock | None = None) -> None:
        self.options = options = options or Options()
        self.clock = clock or SystemClock()
        self.tokens = tokens = options.tokens or new_tokens()
        self.bot_token, self.app_token, self.user_token = tokens.bot, tokens.app, tokens.user
        self.signal = Signal()
        self.faults = Faults()
        self.stream = Stream(self.signal)
        self.workspace = Workspace(self.clock, self.tokens, options.channels)
        self.hub = Hub(self.clock, self.workspace.app_id, options.timing, self.signal)
        self.limits = RateLimits(self.clock, enforced=options.with_limits)
        announcer = Announcer(self.workspace, self.hub, self.stream, options.subscriptions)
        ephemerals = EphemeralMessages(self.workspace, self.stream)
        self.context = WorkspaceContext(
            self.workspace, announcer, self.hub, ephemerals, url="", socket_url=""
        )
        self.people = UserManager(self.context)
        api = WebApi(self.context, self.faults, self.clock, self.limits)
        pages = Pages(self.context, self.stream, self.people, api, options.offers)
        self.interactions, self.dialogs = pages.interactions, pages.dialogs
        self._app = create_app(self.context, api, pages)
        for name in (*options.guests, *options.guest_bots):
            self._add_guest(name, is_bot=name in options.guest_bots)
        self._exit_stack = contextlib.AsyncExitStack()

    def _add_guest(self, name: str, *, is_bot: bool) -> None:
        try:
            self.people.add(name, is_bot=is_bot, notify=False)
        except MethodError as refused:
            why = "already exists" if refused.code == "name_taken" else "is not a valid name"
            raise CodeButlerError(f"{name!r} {why}: use letters and digits, each name once") from None

    @property
    def url(self) -> str:
        """The chat page's URL for the user "you"; the token is in the fragment, so no log shows it."""
        return f"{self.context.url}/#token={self.tokens.user}"

    @property
    def api_url(self) -> str:
        """The equivalent of https://slack.com/api/, with the trailing slash that Slack's clients expect."""
        return f"{self.context.url}/api/"

    @property
    def section(self) -> Json:
        """A configuration section ``slack`` that works here and allows only "you"."""
        return {
            "botToken": self.bot_token,
            "appToken": self.app_token,
            "apiBaseUrl": self.api_url,
            "allowedUsers": [self.workspace.person.id],
        }

    @property
    def sections(self) -> Json:
        """The same, under the section's name."""
        return {"slack": self.section}

    def announcement(self) -> Json:
        """The output of `codebutler workspace --json`; ``users`` by name only if there are others than "you"."""
        addresses: Json = {
            "url": self.url,
            "api_url": self.api_url,
            "bot_token": self.bot_token,
            "app_token": self.app_token,
            "user_token": self.user_token,
        }
        guests = {
            user.name: {"id": user.id, "token": user.token}
            for user in self.workspace.users.values()
            if user not in (self.workspace.bot, self.workspace.person)
        }
        return {**addresses, "users": guests} if guests else addresses

    async def __aenter__(self) -> Self:
        listener = listen(HOST, self.options.port)
        host = f"{HOST}:{listener.getsockname()[1]}"
        self.context.url = f"http://{host}"
        self.context.socket_url = f"ws://{host}"
        self.workspace.files_url = f"{self.context.url}/files"
        await self._exit_stack.enter_async_context(serving(self._app, listener))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stream.close()
        await self.hub.close()
        await self._exit_stack.aclose()

    def add_user(self, name: str, *, is_bot: bool = False) -> User:
        """Add a person, or another app's bot, to every channel; ``.token`` is theirs."""
        return self.people.add(name, is_bot=is_bot)

    def call(self, method: str, token: str, **params: object) -> Json:
        """Call a Web API method without HTTP, faults or limits. Raises MethodError."""
        user = None if token == self.tokens.app else self.workspace.by_token(token)
        return METHODS[method](Call(self.context, user, Params(params)))

    def say(self, channel: str, text: str, thread_ts: str | None = None, user: User | None = None) -> str:
        """A person ("you" unless given) posts in a channel, given by name or ID. Returns the message's ts."""
        author = user or self.workspace.person
        params = {"channel": self.channel_id(channel), "text": text, "thread_ts": thread_ts}
        answer = self.call("chat.postMessage", author.token, **params)
        return str(answer["ts"])

    def channel_id(self, name: str) -> str:
        """The ID of a channel given by name or ID. Raises MethodError channel_not_found."""
        for channel in self.workspace.channels.values():
            if name in (channel.name, channel.id):
                return channel.id
        return self.workspace.channel(name).id

    def thread(self, channel: str, ts: str) -> list[Json]:
        """A thread's messages, including the first, with metadata; [] if there is no such message."""
        where = self.workspace.channel(self.channel_id(channel))
        root = where.messages.get(ts)
        if root is None:
            return []
        shown = (where.messages[known] for known in (ts, *root.replies))
        return [render.message(self.workspace, where, message, metadata=True) for message in shown]

    async def until(self, condition: Callable[[], T | None], timeout_s: float = 10.0) -> T:
        """The first true result of ``condition``, called again after every change. Raises TimeoutError."""
        return await self.signal.until(condition, timeout_s)


def new_tokens() -> Tokens:
    """Unguessable tokens, in the formats that Slack's clients expect."""
    return Tokens(
        bot=f"xoxb-{secrets.token_hex(20)}",
        app=f"xapp-1-{secrets.token_hex(20)}",
        user=f"xoxp-{secrets.token_hex(20)}",
    )


def create_app(context: WorkspaceContext, api: WebApi, pages: Pages) -> LoopbackGuard:
    """Routes and guard; the parts are passed in."""
    static = Path(str(resources.files("codebutler.workspace") / "static"))

    async def index(_: Request) -> Response:
        """For anybody; the token in its address's fragment decides what the page may do."""
        return FileResponse(static / "index.html", headers=PAGE_HEADERS)

    async def link(socket: WebSocket) -> None:
        """The hub checks the ticket in the address, and ends a connection without one."""
        await context.hub.connections.serve(socket, transport_of(socket))

    app = Starlette(
        routes=[
            Route("/", index),
            # Where links to messages lead; a tab without a key says what to do.
            Route("/archives/{place:path}", index),
            Mount("/static", StaticFiles(directory=static)),
            WebSocketRoute("/link/", link),
            Route("/api/{method}", api.call, methods=["GET", "POST"]),
            Route("/upload/{ticket}", api.upload, methods=["POST"]),
            Route("/files/{file}/{name:path}", api.download),
            Route("/response/{key}", pages.respond, methods=["POST"]),
            Route("/workspace/boot", pages.boot),
            Route("/workspace/stream", pages.follow),
            Route("/workspace/render", pages.markdown, methods=["POST"]),
            Route("/workspace/faults", pages.faults, methods=["GET", "POST", "DELETE"]),
            Route("/workspace/limits", pages.limits, methods=["POST"]),
            *(Route(f"/workspace/{act}", pages.perform, methods=["POST"]) for act in pages.actions),
            Route("/workspace/disconnect", pages.disconnect, methods=["POST"]),
        ],
        exception_handlers={MethodError: _error_response},
    )
    # Outside all of Starlette's own layers, which hide the connection.
    return LoopbackGuard(app)


def _error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, MethodError)
    status = 401 if error.code in ("not_authed", "invalid_auth") else 400
    return JSONResponse(error_body(error), status)
