"""Requests to the service behind the remote, and what it reports about a pull request: with a configured token, or
through the owner's own ``gh``. Responses are untrusted data, no matter who runs the service. No error ever contains the
token or ``gh`` credentials."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from codebutler.config.resolve import mask_text
from codebutler_worker.forge.remote import OUTPUT_BYTES, ForgeError, Host
from codebutler_worker.internet.addresses import PageRefusedError
from codebutler_worker.internet.fetch import Internet
from codebutler_worker.internet.remote import proxy_of

if TYPE_CHECKING:
    import httpx

REQUEST_LIMIT_S = 60.0
LOG_BYTES = 64 * 2**20
TAIL_BYTES = 64 * 2**10
DETAIL_CHARS = 200
MAX_TEXT_CHARS = 8_000
REDIRECTED, REFUSED = 300, 400
MAX_REDIRECTS = 3
NOT_LOGGED_IN = 4
"""gh's exit code when it is not logged in to the host (`gh help exit-codes`)."""
LOGIN = (
    "gh has no login for {host}: run `gh auth login --hostname {host}` on this machine, or set `forge.token`"
)

T = TypeVar("T")
Number = Annotated[int, Meta(ge=0, le=2**62)]
PAGE, MAX_PAGES = 100, 10
_STATUS = re.compile(r"HTTP (\d{3})")

PullState = Literal["open", "merged", "closed"]


class RefusedError(ForgeError):
    """The service refused with this HTTP ``status`` (0 = unknown)."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


class Api(Protocol):
    """One service's REST interface. ``path`` is relative to its base URL."""

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Its response. Raises ForgeError, with the service's reason for a refusal."""

    async def fetch_tail(self, path: str) -> bytes:
        """The end of a long text, which may be stored elsewhere. Raises ForgeError."""


class TokenApi(Struct, frozen=True):
    """Sends ``headers``, which hold a token. ``agent_env`` names the proxies."""

    base_url: str
    headers: Mapping[str, str]
    agent_env: Mapping[str, str]
    internet: Internet = field(default_factory=Internet)

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """See Api."""
        import httpx  # half a megabyte that most workers never need

        url = self._url(path)
        try:
            async with self._client(url) as client:
                for _ in range(MAX_REDIRECTS):
                    async with client.stream(method, url, headers=self.headers, json=body) as response:
                        found = await _read_body(response, OUTPUT_BYTES, OUTPUT_BYTES)
                    if not (target := _redirect_target(response)):
                        break
                    url = target
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise _unreachable(error) from None
        if response.status_code >= REDIRECTED:
            raise RefusedError(_refusal(str(response.status_code), found), response.status_code)
        return found

    async def fetch_tail(self, path: str) -> bytes:
        """See Api. Another host gets no token, and is asked only if it is on the public internet."""
        import httpx

        url = self._url(path)
        try:
            async with (
                self._client(url) as client,
                client.stream("GET", url, headers=self.headers) as response,
            ):
                if response.status_code < REDIRECTED:
                    return await _read_body(response, LOG_BYTES, TAIL_BYTES)
                elsewhere = response.headers.get("location", "")
            if response.status_code >= REFUSED or not elsewhere.startswith("https://"):
                raise RefusedError(_refusal(str(response.status_code), b""), response.status_code)
            return await self.internet.end_of(elsewhere, TAIL_BYTES, LOG_BYTES)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise _unreachable(error) from None
        except PageRefusedError as error:
            raise ForgeError(str(error)) from None

    def _url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"

    def _client(self, url: str) -> httpx.AsyncClient:
        import httpx

        # Follow redirects by hand: the service could redirect into this machine's network.
        return httpx.AsyncClient(
            timeout=REQUEST_LIMIT_S, proxy=proxy_of(url, self.agent_env), trust_env=False
        )


def _redirect_target(response: httpx.Response) -> str:
    """The new path of a renamed repository; "" if it is on another service: nobody else gets the token."""
    if response.status_code not in (301, 307, 308) or (next_request := response.next_request) is None:
        return ""
    old, new = response.request.url, next_request.url
    is_same = (new.scheme, new.host, new.port) == (old.scheme, old.host, old.port)
    return str(new) if is_same else ""


async def _read_body(response: httpx.Response, max_bytes: int, kept_bytes: int) -> bytes:
    found, size = bytearray(), 0
    async for piece in response.aiter_bytes():
        found += piece
        size += len(piece)
        if size > max_bytes:
            raise ForgeError("the service's answer is too large")
        del found[:-kept_bytes]
    return bytes(found)


def _unreachable(error: Exception) -> ForgeError:
    return ForgeError(f"the service cannot be reached ({type(error).__name__}): try again later")


class GhApi(Struct, frozen=True):
    """Requests through ``gh api``, which keeps its credentials to itself. ``place`` is its working directory, which
    is not a repository."""

    host: Host
    hostname: str
    place: Path

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """See Api."""
        words = ["api", "--method", method]
        words += ["--input", "-"] if body is not None else []
        stdin = msgspec.json.encode(body) if body is not None else b""
        # Not --hostname: it does not accept a port.
        env = {
            "GH_HOST": self.hostname,
            "GH_PROMPT_DISABLED": "1",
            "GH_NO_UPDATE_NOTIFIER": "1",
            "NO_COLOR": "1",
            "GH_PAGER": "cat",
        }
        ended = await self.host.run(
            "gh", *words, path, env=env, cwd=self.place, limit_s=REQUEST_LIMIT_S, stdin=stdin
        )
        if ended is None:
            raise ForgeError("gh is not installed: install it, or set `forge.token`")
        if ended.cut:
            raise ForgeError("the service's answer is too large")
        if ended.code == 0:
            return ended.output
        if ended.code is None:
            raise ForgeError("the service did not answer in time: try again later")
        if ended.code == NOT_LOGGED_IN or "HTTP 401" in ended.stderr:
            raise ForgeError(LOGIN.format(host=self.hostname))
        lines = ended.stderr.strip().splitlines() or ["gh ended with an error"]
        message = next((line for line in lines if line.startswith("gh: ")), lines[0])
        status = _STATUS.search(message)
        reason = _refusal(message.removeprefix("gh: ")[:DETAIL_CHARS], ended.output)
        raise RefusedError(reason, int(status[1]) if status else 0)

    async def fetch_tail(self, path: str) -> bytes:
        """See Api. gh follows the redirects of a service that its owner has logged in to."""
        return (await self.request("GET", path))[-TAIL_BYTES:]


def decode_answer(answer: bytes, kind: type[T]) -> T:
    """The answer as ``kind``. Raises ForgeError."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ForgeError("the service sent an unexpected answer: check `forge.apiUrl`") from None


def _refusal(status: str, body: bytes) -> str:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        answer = {}
    errors = answer.get("errors") if isinstance(answer, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else None
    reason = first.get("message") if isinstance(first, dict) else None
    reason = reason or (answer.get("message") if isinstance(answer, dict) else None)
    detail = f": {' '.join(reason.split())[:DETAIL_CHARS]}" if isinstance(reason, str) else ""
    return mask_text(f"the service refused ({status}){detail}")


class Pull(Struct, frozen=True):
    """A pull request; ``commit`` is its newest, "" if the service does not say."""

    number: int
    url: str
    commit: str = ""
    state: PullState = "open"


def bound_text(text: str) -> str:
    """What anybody may have written, as far as it is looked at: searching it for secrets takes time."""
    return text[:MAX_TEXT_CHARS]


class FailedJob(Struct, frozen=True):
    """A failed check. ``id`` is 0 if it has no log: then ``details`` is all that is known; ``key`` tells attempts
    apart."""

    id: int
    name: str
    details: str = ""
    key: str = ""


class PullChecks(Struct, frozen=True):
    """The checks of a commit taken together. ``key`` stays the same while their results do."""

    state: Literal["none", "pending", "passed", "failed"]
    number: int = 0
    failed: tuple[FailedJob, ...] = ()
    key: str = ""


class PullComment(Struct, frozen=True):
    """A comment on a pull request, possibly on a line of a file. Anybody may have written it. IDs of one ``kind``
    increase."""

    kind: str
    id: int
    author: str
    text: str
    place: str = ""


def summarize_checks(number: int, failed: Sequence[FailedJob], *, pending: bool) -> PullChecks:
    """The state of ``number`` checks of which these have failed."""
    if pending or not number:
        return PullChecks("pending" if pending else "none", number, tuple(failed))
    if not failed:
        return PullChecks("passed", number, key="passed")
    attempts = "\n".join(sorted(f"{job.id} {job.key} {job.name}" for job in failed))
    return PullChecks("failed", number, tuple(failed), hashlib.sha256(attempts.encode()).hexdigest()[:16])


@dataclass(frozen=True, slots=True)
class Service(ABC):
    """One repository at its service. Every method raises ForgeError."""

    api: Api
    path: str

    @property
    @abstractmethod
    def root(self) -> str:
        """Its path in the service's interface."""

    @abstractmethod
    async def find(self, branch: str) -> Pull | None:
        """The open pull request of a branch of this repository."""

    @abstractmethod
    async def open(self, branch: str, base: str, title: str, body: str) -> Pull:
        """Open one."""

    @abstractmethod
    async def describe(self, number: int, body: str) -> None:
        """Replace its description."""

    @abstractmethod
    async def get(self, number: int) -> Pull:
        """Its state."""

    @abstractmethod
    async def checks(self, pull: Pull) -> PullChecks:
        """The checks of its newest commit."""

    @abstractmethod
    async def log(self, job: FailedJob) -> bytes:
        """The end of a failed job's log; empty if the service has none."""

    @abstractmethod
    async def comments(self, number: int, seen: Mapping[str, int]) -> list[PullComment]:
        """What is newer than the ``seen`` ones, by kind, oldest first."""

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """The response to a request about it."""
        return await self.api.request(method, f"{self.root}/{path}", body)

    async def pages(self, path: str, kind: Any, *, field: str = "", more: str = "") -> list[Any]:
        """All items of a list, which is ``field`` of each page."""
        found: list[Any] = []
        for page in range(1, MAX_PAGES + 1):
            query = f"{path}?per_page={PAGE}&page={page}{more}"
            answer = decode_answer(await self.request("GET", query), kind)
            items = getattr(answer, field) if field else answer
            found += items
            if len(items) < PAGE:
                break
        return found
