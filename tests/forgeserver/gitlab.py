"""The tests' own GitLab, as far as a merge request goes, on loopback.

It keeps what it is told and refuses what GitLab refuses: a wrong token, a second merge request of a branch.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TOKEN = "glpat-0123456789abcdefghij"
PATH = "acme/web/shop"


@dataclass
class GitLabServer:
    """``port`` is 0 while it is not served."""

    port: int = 0
    merges: list[dict[str, Any]] = field(default_factory=list)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    traces: dict[int, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded])
        place = "/api/v4/projects/{project}"
        app.router.add_get(f"{place}/merge_requests", self._list)
        app.router.add_post(f"{place}/merge_requests", self._open)
        app.router.add_put(f"{place}/merge_requests/{{number}}", self._change)
        app.router.add_get(f"{place}/merge_requests/{{number}}", self._get)
        app.router.add_get(f"{place}/merge_requests/{{number}}/notes", self._notes)
        app.router.add_get(f"{place}/repository/commits/{{commit}}/statuses", self._statuses)
        app.router.add_get(f"{place}/jobs/{{job}}/trace", self._trace)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        if request.headers.get("PRIVATE-TOKEN") != TOKEN:
            return web.json_response({"message": "401 Unauthorized"}, status=401)
        if request.match_info["project"] != PATH:
            return web.json_response({"message": "404 Project Not Found"}, status=404)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _list(self, request: web.Request) -> web.Response:
        branch = request.query["source_branch"]
        found = [
            each for each in self.merges if each["source_branch"] == branch and each["state"] == "opened"
        ]
        return web.json_response(found)

    async def _open(self, request: web.Request) -> web.Response:
        said = json.loads(await request.read())
        number = 7 + len(self.merges)
        url = f"https://localhost:{self.port}/{PATH}/-/merge_requests/{number}"
        self.merges.append({"iid": number, "web_url": url, "state": "opened", "sha": "a" * 40, **said})
        return web.json_response(self.merges[-1], status=201)

    async def _change(self, request: web.Request) -> web.Response:
        merge = self._merge(request)
        merge.update(json.loads(await request.read()))
        return web.json_response(merge)

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._merge(request))

    async def _notes(self, request: web.Request) -> web.Response:
        return web.json_response(self.notes if request.query["page"] == "1" else [])

    async def _statuses(self, request: web.Request) -> web.Response:
        return web.json_response(self.statuses if request.query["page"] == "1" else [])

    async def _trace(self, request: web.Request) -> web.Response:
        return web.Response(text=self.traces[int(request.match_info["job"])])

    def _merge(self, request: web.Request) -> dict[str, Any]:
        return next(each for each in self.merges if each["iid"] == int(request.match_info["number"]))


@contextlib.asynccontextmanager
async def serving(server: GitLabServer) -> AsyncIterator[GitLabServer]:
    """While it is served."""
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()
