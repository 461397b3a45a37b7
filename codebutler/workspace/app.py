"""The workspace as a Starlette application."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from codebutler.workspace.api import LoopbackGuard, WebApi, refusal, transport_of
from codebutler.workspace.calls import House
from codebutler.workspace.pages import Pages
from codebutler.workspace.records import MethodError

PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


@dataclass
class Site:
    """The page's files and the app's websocket, as endpoints."""

    house: House
    static: Path

    async def index(self, _: Request) -> Response:
        """The chat page, for anybody; the token in its address's fragment decides what it may do."""
        return FileResponse(self.static / "index.html", headers=PAGE_HEADERS)

    async def link(self, socket: WebSocket) -> None:
        """Socket Mode: the hub checks the ticket in the address, and ends a connection without one."""
        await self.house.hub.serve(socket, transport_of(socket))


def create_app(house: House, api: WebApi, pages: Pages) -> LoopbackGuard:
    """Routes and guard; the parts are passed in."""
    static = Path(str(resources.files("codebutler.workspace") / "static"))
    site = Site(house, static)
    inner = Starlette(
        routes=[
            Route("/", site.index),
            # Where links to messages lead; a tab without a key says what to do.
            Route("/archives/{place:path}", site.index),
            Mount("/static", StaticFiles(directory=static)),
            WebSocketRoute("/link/", site.link),
            Route("/api/{method}", api.call, methods=["GET", "POST"]),
            Route("/upload/{ticket}", api.upload, methods=["POST"]),
            Route("/files/{file}/{name:path}", api.download),
            Route("/response/{key}", pages.respond, methods=["POST"]),
            Route("/workspace/boot", pages.boot),
            Route("/workspace/stream", pages.follow),
            Route("/workspace/render", pages.markdown, methods=["POST"]),
            Route("/workspace/faults", pages.faults, methods=["GET", "POST", "DELETE"]),
            Route("/workspace/limits", pages.limits, methods=["POST"]),
            *(Route(f"/workspace/{act}", pages.act, methods=["POST"]) for act in pages.acts),
            Route("/workspace/disconnect", pages.disconnect, methods=["POST"]),
        ],
        exception_handlers={MethodError: _refused},
    )
    # Outside all of Starlette's own layers, which hide the connection.
    return LoopbackGuard(inner)


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, MethodError)
    status = 401 if error.code in ("not_authed", "invalid_auth") else 400
    return JSONResponse(refusal(error), status)
