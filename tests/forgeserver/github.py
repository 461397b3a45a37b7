"""The tests' own GitHub, as far as a pull request goes, on loopback: over HTTP, or HTTPS with a certificate of its own.

It keeps what it is told and refuses what GitHub refuses: a wrong token, a branch that is not in the remote, a second
pull request of a branch.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

TOKEN = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
OWNER, NAME = "acme", "shop"


@dataclass
class GitHubServer:
    """``remote`` is the bare repository whose branches exist. ``port`` is 0 while it is not served."""

    remote: Path
    port: int = 0
    pulls: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    refuses: str = ""
    runs: list[dict[str, Any]] = field(default_factory=list)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[int, str] = field(default_factory=dict)
    said: list[dict[str, Any]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    reviews: list[dict[str, Any]] = field(default_factory=list)
    hides_checks: bool = False
    """As GitHub does from a person's fine-grained token."""
    moved_to: str = ""
    """Where it says that logs are."""

    def check(self, name: str, conclusion: str | None = None, log: str = "") -> None:
        """A check run, as it is from now on; a new attempt has a new id."""
        self.runs = [run for run in self.runs if run["name"] != name]
        number = len(self.asked) + 1000 + len(self.runs)
        status = "completed" if conclusion else "in_progress"
        self.runs.append({"id": number, "name": name, "status": status, "conclusion": conclusion})
        self.logs[number] = log

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded])
        for root in ("", "/api/v3"):
            place = f"{root}/repos/{OWNER}/{NAME}"
            app.router.add_get(f"{place}/pulls", self._list)
            app.router.add_post(f"{place}/pulls", self._open)
            app.router.add_patch(f"{place}/pulls/{{number}}", self._change)
            app.router.add_get(f"{place}/pulls/{{number}}", self._get)
            app.router.add_get(f"{place}/commits/{{commit}}/check-runs", self._check_runs)
            app.router.add_get(f"{place}/commits/{{commit}}/status", self._status)
            app.router.add_get(f"{place}/actions/runs", self._action_runs)
            app.router.add_get(f"{place}/actions/runs/{{run}}/jobs", self._jobs)
            app.router.add_get(f"{place}/actions/jobs/{{job}}/logs", self._log)
            for path, kind in (("issues/{number}/comments", "said"), ("pulls/{number}/comments", "lines"),
                               ("pulls/{number}/reviews", "reviews")):  # fmt: skip
                app.router.add_get(f"{place}/{path}", partial(self._written, kind))
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        if request.headers.get("Authorization", "").split(" ")[-1] != TOKEN:
            return web.json_response({"message": "Bad credentials"}, status=401)
        if self.refuses and request.method == "POST":
            return web.json_response({"message": self.refuses}, status=422)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _list(self, request: web.Request) -> web.Response:
        _, _, branch = request.query["head"].partition(":")
        return web.json_response(
            [p for p in self.pulls if p["head"]["ref"] == branch and p["state"] == "open"]
        )

    async def _open(self, request: web.Request) -> web.Response:
        said = json.loads(await request.read())
        commit = self._tip(said["head"])
        if not commit:
            return web.json_response(
                {"message": "Validation Failed", "errors": [{"message": "head invalid"}]}, status=422
            )
        number = 12 + len(self.pulls)
        pull = {
            "number": number, "html_url": f"https://{self.host}/{OWNER}/{NAME}/pull/{number}", "state": "open",
            "merged_at": None, "title": said["title"], "body": said["body"], "base": {"ref": said["base"]},
            "head": {"ref": said["head"], "sha": commit},
        }  # fmt: skip
        self.pulls.append(pull)
        return web.json_response(pull, status=201)

    async def _change(self, request: web.Request) -> web.Response:
        pull = self._pull(request)
        pull.update(json.loads(await request.read()))
        return web.json_response(pull)

    async def _get(self, request: web.Request) -> web.Response:
        pull = self._pull(request)
        pull["head"]["sha"] = self._tip(pull["head"]["ref"])
        return web.json_response(pull)

    async def _check_runs(self, request: web.Request) -> web.Response:
        if self.hides_checks:
            return web.json_response(
                {"message": "Resource not accessible by personal access token"}, status=403
            )
        return web.json_response({"total_count": len(self.runs), "check_runs": _page(request, self.runs)})

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response({"state": "pending", "statuses": _page(request, self.statuses)})

    async def _action_runs(self, request: web.Request) -> web.Response:
        ended = [run["conclusion"] for run in self.runs]
        bad = next((each for each in ended if each not in (None, "success")), None)
        run = {"id": 7, "name": "CI", "status": "in_progress" if None in ended else "completed",
               "conclusion": None if None in ended else bad or "success"}  # fmt: skip
        return web.json_response({"total_count": 1, "workflow_runs": [run] if self.runs else []})

    async def _jobs(self, request: web.Request) -> web.Response:
        return web.json_response({"total_count": len(self.runs), "jobs": _page(request, self.runs)})

    async def _log(self, request: web.Request) -> web.Response:
        if self.moved_to:
            return web.Response(status=302, headers={"Location": self.moved_to})
        return web.Response(text=self.logs[int(request.match_info["job"])])

    async def _written(self, kind: str, request: web.Request) -> web.Response:
        found: list[dict[str, Any]] = getattr(self, kind)
        return web.json_response(_page(request, found))

    def _pull(self, request: web.Request) -> dict[str, Any]:
        return next(p for p in self.pulls if p["number"] == int(request.match_info["number"]))

    def _tip(self, branch: str) -> str:
        words = [
            "git",
            "-C",
            str(self.remote),
            "-c",
            "safe.directory=*",
            "rev-parse",
            "-q",
            "--verify",
            f"refs/heads/{branch}",
        ]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def _page(request: web.Request, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    size, number = int(request.query.get("per_page", 30)), int(request.query.get("page", 1))
    return items[(number - 1) * size : number * size]


def certificate(place: Path) -> tuple[Path, Path]:
    """(certificate, key) for localhost, its own authority."""
    cert, key = place / "cert.pem", place / "key.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    words += [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    subprocess.run(words, check=True, capture_output=True)
    return cert, key


@contextlib.asynccontextmanager
async def serving(server: GitHubServer, tls: tuple[Path, Path] | None = None) -> AsyncIterator[GitHubServer]:
    """While it is served."""
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", server.port, ssl_context=context).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()
