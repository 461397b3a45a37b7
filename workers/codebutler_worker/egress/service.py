"""A model's service behind the proxy: where it is, and the keys that are added to what an agent sends it. Pure.

The agent holds a token instead, which is worth nothing anywhere else. Whoever sends another key is refused: a key of
somebody else's would carry what is in here into that somebody's account.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from codebutler_worker.egress.heads import Head
from codebutler_worker.egress.hosts import Place, place

KEY_HEADERS = ("x-api-key", "authorization", "api-key")
BEARER = "Bearer "


class WrongKeyError(Exception):
    """The request carries a key that is not the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """``keys``: header (lower case) -> its whole value; ``extra``: headers that every request gets; without keys
    those of the agent's own go through as they are."""

    base_url: str
    token: str = field(repr=False, default="")
    keys: tuple[tuple[str, str], ...] = field(repr=False, default=())
    extra: tuple[tuple[str, str], ...] = field(repr=False, default=())

    @property
    def secure(self) -> bool:
        return urlsplit(self.base_url).scheme == "https"

    @property
    def place(self) -> Place | None:
        """Where it is; None if its URL is none."""
        parts = urlsplit(self.base_url)
        return place(parts.netloc.rpartition("@")[2], 443 if self.secure else 80)

    @property
    def path(self) -> str:
        """What each request's path begins with, without a final slash."""
        return urlsplit(self.base_url).path.rstrip("/")

    def has(self, target: str) -> bool:
        """Whether a request's path lies within the service; two readers must not see two places."""
        path = target.partition("?")[0]
        steps = [unquote(step) for step in re.split(r"[/\\]", unquote(path))]
        return path.startswith(f"{self.path}/") and not {".", ".."} & set(steps)

    def inside(self, port: int) -> str:
        """Its base URL for the agent, where the proxy is on ``port`` of the loopback."""
        return f"http://127.0.0.1:{port}{self.path}"

    def onward(self, head: Head) -> Head:
        """The request as it goes to the service. Raises WrongKeyError."""
        assert self.place is not None
        host = urlsplit(self.base_url).netloc.rpartition("@")[2]
        names = tuple(name.lower() for name, _ in self.extra)
        sent = head.onward(head.target, host).without(*names)
        if not self.keys:
            return Head(sent.method, sent.target, (*sent.headers, *self.extra))
        real = dict(self.keys)
        headers = []
        for name, value in sent.headers:
            known = name.lower()
            if known in KEY_HEADERS:
                given = value.removeprefix(BEARER) if known == "authorization" else value
                if known not in real or not hmac.compare_digest(given.encode(), self.token.encode()):
                    raise WrongKeyError
                headers.append((name, real[known]))
            else:
                headers.append((name, value))
        return Head(sent.method, sent.target, (*headers, *self.extra))


def parse_headers(text: str) -> tuple[tuple[str, str], ...]:
    """``Name: value`` lines, as ANTHROPIC_CUSTOM_HEADERS has them."""
    pairs = (line.partition(":") for line in text.splitlines())
    return tuple((name.strip(), value.strip()) for name, colon, value in pairs if colon and name.strip())
