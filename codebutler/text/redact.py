"""Removing secrets from text: the values we hold, in every spelling, and anything that looks like a token. Pure.

The last line of defence, not the first: a secret should not be where an agent can read it. It finds values as they are,
in the encodings of programs, and cut in two, but not what somebody encodes on purpose (backwards, letter by letter,
encrypted).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

from msgspec import Struct
from msgspec.structs import replace

from codebutler.text.disguised import (
    BEGUN_CHARS,
    CUT,
    ESCAPE_SIGNS,
    Escapes,
    Gaps,
    PartialSecrets,
    first_match,
    merged,
)

REDACTED = "[redacted]"
MIN_SECRET_CHARS = 8
LONG_CHARS = 32_768

# Each is the public format of one issuer's tokens; none starts in the middle of a word.
TOKEN_PATTERNS = (
    r"xox[a-z](?:\.xox[a-z])?-[\w-]{8,}",  # Slack bot, user, expiring, legacy
    r"xapp-\d-[\w-]{8,}",  # Slack app level
    r"xoxe-[\w-]{8,}",  # Slack refresh
    r"gh[pousr]_\w{20,}",  # GitHub
    r"github_pat_\w{20,}",
    r"glpat-[\w-]{16,}",  # GitLab
    r"sk-(?=[\w-]{0,80}\d)[\w-]{20,}",  # Anthropic, OpenAI, Moonshot, OpenRouter
    r"tvly-[\w-]{16,}",  # Tavily
    r"gsk_\w{20,}",  # Groq
    r"xai-\w{20,}",  # xAI
    r"(?:AKIA|ASIA)[0-9A-Z]{16}\b",  # AWS
    r"AIza[\w-]{35}",  # Google
    r"ya29\.[\w-]{20,}",
    r"GOCSPX-[\w-]{20,}",
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-[\w-]{40,}",
    r"hf_[A-Za-z0-9]{20,}",  # Hugging Face
    r"SG\.[\w-]{16,}\.[\w-]{16,}",  # SendGrid
    r"[rs]k_(?:live|test)_\w{16,}",  # Stripe
    r"whsec_\w{20,}",
    r"dop_v1_[0-9a-f]{40,}",  # DigitalOcean
    r"dckr_pat_[\w-]{20,}",  # Docker
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",  # Shopify
    # JSON Web Token. No "eyJ" in its head: otherwise each one in a sequence of them would be read to the end.
    r"eyJ(?:(?!eyJ)[\w-]){8,}+\.[\w-]{8,}+\.[\w-]*",
    r"[0-9]{8,10}:AA[\w-]{33}",  # Telegram
)
# What a text must contain for any of the patterns to match, as ``re`` and RE2 read it.
SIGNS = (
    r"xox[a-z]|xapp-|gh[pousr]_|github_pat_|glpat-|(?:^|[^A-Za-z0-9])sk-|tvly-|gsk_|xai-|AKIA|ASIA|AIza|ya29\.|GOCSPX-|npm_"
    r"|pypi-|hf_|SG\.|[rs]k_(?:live|test)_|whsec_|dop_v1_|dckr_pat_|shp(?:at|ca|pa|ss)_|eyJ|:AA|PRIVATE KEY-----"
    r"|(?i:bearer|basic)[^!-~]|://[^\s/:@]{0,200}:[^\s/@]+@|hooks\.slack\.com/"
    r"|[?&](?:ticket|token|access_token|api_key|X-Amz-Signature)="
)
# The longest sign, a password in an address, may have 720 characters.
LONGEST_SIGN_BYTES = 4_096
# The words around these stay readable: only the group named "secret…" is removed.
CONTEXT_PATTERNS = (
    r"-----BEGIN (?P<pem>[A-Z ]*PRIVATE KEY)-----(?P<secret_pem>.{16,}?)(?:-----END (?P=pem)-----|\Z)",
    r"(?i:\b(?:bearer|basic)\s+)(?P<secret_auth>(?=[\w+/.~-]{0,80}\d)[\w+/.~-]{16,}=*)",
    r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,200}:(?P<secret_url>[^\s/@]{1,500})@",
    r"[?&](?:ticket|token|access_token|api_key|X-Amz-Signature)=(?P<secret_query>[^\s&\"'<>|]{8,})",
    r"https://hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret_hook>[\w/-]{12,})",
)
_HINT = re.compile(f"{SIGNS}|{ESCAPE_SIGNS}|{CUT}")
_PERCENT = re.compile("%[0-9A-F]{2}")
# As Go and Ruby on Rails write JSON by default.
_SAFE_IN_HTML = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "&<>"})
_PEM = re.compile(rb"BEGIN [A-Z ]*PRIVATE KEY-----")
_NOT_SPACE = re.compile(rb"\S")
_OF_OURS = frozenset({"style", "kind"})
"""Fields of messages with a fixed set of values, not texts."""
T = TypeVar("T")
_FILE = re.compile(r"^(?=diff --git )", re.MULTILINE)
"""Every line of a file's content has a sign before it, so none begins a file."""


class Redactor:
    """Replaces secrets by ``[redacted]``. ``secrets`` are exact values; those under 8 characters are ignored.

    Nothing of a secret is shown, neither its ends nor its length.
    """

    def __init__(self, secrets: Iterable[str] = (), *, long_chars: int = LONG_CHARS) -> None:
        self._spellings: set[str] = set()
        self._exact: re.Pattern[str] | None = None
        self._signs: Any = None
        self._more_lines = 0
        self._begun = PartialSecrets()
        self._gaps = Gaps()
        self._ends: frozenset[str] = frozenset()
        """The first and the last characters of each spelling: in any part of it that is searched for, there is one."""
        self._values: set[str] = set()
        self._escapes = Escapes()
        self._long_chars = long_chars
        self._tokens = re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(TOKEN_PATTERNS) + ")")
        self._context = [re.compile(pattern, re.DOTALL) for pattern in CONTEXT_PATTERNS]
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Replace these values too from now on."""
        for secret in secrets:
            if len(secret) >= MIN_SECRET_CHARS:
                self._values.add(secret)
                self._spellings.update(_spellings(secret))
        longest_first = sorted(self._spellings, key=lambda spelling: (-len(spelling), spelling))
        self._exact = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self._signs = None
        self._ends = frozenset(
            end for each in self._spellings for end in (each[:BEGUN_CHARS], each[-BEGUN_CHARS:])
        )
        self._begun = PartialSecrets(self._spellings)
        self._gaps = Gaps(self._spellings, self._long_chars)
        self._escapes = Escapes(sorted(self._values))
        self._more_lines = max((spelling.count("\n") for spelling in self._spellings), default=0)

    def redact(self, text: str, *, cut: bool = False) -> str:
        """``text`` without secrets; the same object if there are none. Doing it twice changes nothing.

        Parts of an exact value at the start or end of the text are removed too, since the rest may be in the message
        before or after. ``cut``: the text continues, so even the beginning of something like a token is removed.
        """
        if (
            not cut
            and len(text) < self._long_chars
            and _HINT.search(text) is None
            and self._ends.isdisjoint(text[at : at + BEGUN_CHARS] for at in range(len(text)))
            and not self._gaps.shows(text)
        ):
            return text  # nothing that the searches below need is in it
        whole = self._gaps.hide(self._redact_whole(text), REDACTED)
        return self._begun.hide(whole, REDACTED, cut=cut)

    def _redact_whole(self, text: str) -> str:
        """In a long text RE2 finds candidates, many times faster than ``re``, which then examines only those lines."""
        if len(text) < self._long_chars:
            return self._redact_closely(text)
        try:
            data = text.encode()
        except UnicodeEncodeError:  # a lone surrogate, which RE2 does not accept
            return self._redact_closely(text)
        pieces, done = [], 0
        for start, end in merged(self._suspect_lines(data)):
            pieces += [data[done:start].decode(), self._redact_closely(data[start:end].decode())]
            done = end
        return "".join([*pieces, data[done:].decode()]) if pieces else text

    def _suspect_lines(self, data: bytes) -> Iterator[tuple[int, int]]:
        """(start, end) of the whole lines around each candidate, in order.

        Each line is examined once: it is suspect as a whole, and so are the next ones, as far as something that begins
        in it may reach.
        """
        signs = self._compiled_signs()
        overlap = LONGEST_SIGN_BYTES + max((4 * len(spelling) for spelling in self._spellings), default=0)
        at = 0
        while (hit := first_match(signs, data, at, overlap)) is not None:
            start = data.rfind(b"\n", 0, hit.start()) + 1
            line_end = _line_end(data, hit.end())
            end = line_end
            for _ in range(1 + self._more_lines):
                end = _line_end(data, _text_after(data, end))
            if _PEM.search(data, start, end):
                end = line_end = len(data)  # only the closer look can tell where a key ends
            yield start, end
            if line_end >= len(data):
                return
            at = line_end + 1

    def _compiled_signs(self) -> Any:
        if self._signs is None:
            import re2  # a few MB, not needed for short texts

            exact = sorted(map(re2.escape, self._spellings))
            self._signs = re2.compile("|".join([SIGNS, ESCAPE_SIGNS, *exact]).encode())
        return self._signs

    def _redact_closely(self, text: str) -> str:
        if self._exact:
            text = self._escapes.hide(self._exact.sub(REDACTED, text), REDACTED)
        for pattern in self._context:
            text = pattern.sub(_without_secret, text)
        return self._tokens.sub(REDACTED, text)


def every_text(value: T, change: Callable[[str], str]) -> T:
    """The same value, with ``change`` applied to every text in it, but not to the keys of an object."""
    changed: Any = value
    if isinstance(value, str):
        changed = change(value)
    elif isinstance(value, tuple):
        changed = tuple(every_text(each, change) for each in value)
    elif isinstance(value, list):
        changed = [every_text(each, change) for each in value]
    elif isinstance(value, dict):
        changed = {key: every_text(each, change) for key, each in value.items()}
    elif isinstance(value, Struct):
        fields = (name for name in value.__struct_fields__ if name not in _OF_OURS)
        changed = replace(value, **{name: every_text(getattr(value, name), change) for name in fields})
    result: T = changed
    return result


def redacted_bytes(content: bytes, redact: Callable[[str], str]) -> bytes:
    """Redact a file: as UTF-8, or as readable text among other bytes. If it shows a secret between NULs (UTF-16,
    UTF-32), the result lacks them. Compressed content (an archive, an image) passes unchanged."""
    content = _through(content, redact)
    if b"\0" in content:
        bare = content.replace(b"\0", b"")
        if (hidden := _through(bare, redact)) != bare:
            return hidden
    return content


def _through(content: bytes, redact: Callable[[str], str]) -> bytes:
    try:
        text, encoding = content.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = content.decode("latin-1"), "latin-1"
    shown = redact(text)
    return content if shown == text else shown.encode(encoding)


def _line_end(data: bytes, place: int) -> int:
    end = data.find(b"\n", place)
    return len(data) if end < 0 else end


def _text_after(data: bytes, place: int) -> int:
    """Where the white space at ``place`` ends."""
    found = _NOT_SPACE.search(data, place)
    return len(data) if found is None else found.start()


def _without_secret(match: re.Match[str]) -> str:
    name = next(name for name in match.re.groupindex if name.startswith("secret"))
    start, end = (place - match.start() for place in match.span(name))
    return match[0][:start] + REDACTED + match[0][end:]


def _spellings(secret: str) -> Iterator[str]:
    """The value as it appears in addresses, JSON, HTML and encodings of a text that contains it."""
    raw = secret.encode()
    yield from (secret, secret.upper(), secret.lower())
    for address in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield from (address, _PERCENT.sub(lambda found: found[0].lower(), address))
    yield quote(quote(secret, safe=""), safe="")
    for ascii_only in (True, False):
        quoted = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield from (quoted, quoted.replace("/", "\\/"), quoted.translate(_SAFE_IN_HTML))
        yield json.dumps(quoted)[1:-1]
    bare = secret.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield bare
    for quote_mark in ("&#x27;", "&#39;", "&apos;"):
        yield bare.replace('"', "&quot;").replace("'", quote_mark)
    yield repr(raw)[2:-1]
    yield base64.b32encode(raw).decode().rstrip("=")
    yield base64.b64encode(secret.encode("utf-16-le")).decode()
    yield raw.decode("latin-1")  # in a file that is read byte by byte
    yield raw.hex()
    yield raw.hex().upper()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).decode()
        yield from (core for core in _base64_cores(raw, encode) if len(core) >= MIN_SECRET_CHARS)
    yield from (line for line in secret.splitlines() if len(line) >= 2 * MIN_SECRET_CHARS)


def _base64_cores(raw: bytes, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """What base64 of any text with ``raw`` in it contains, for each of the three alignments."""
    for before in range(3):
        text = encode(b"\0" * before + raw).decode()
        first = -(-before * 8 // 6)
        last = (before + len(raw)) * 8 // 6
        yield text[first:last]


def redacted_diff(diff: str, redact: Callable[[str], str]) -> str:
    """The diff without secrets, redacted file by file: the beginning of a key in one file must not hide the next
    files."""
    return "".join(_whole_lines(part, redact) for part in _FILE.split(diff))


def _whole_lines(part: str, redact: Callable[[str], str]) -> str:
    lines = part.removesuffix("\n")
    return redact(lines) + part[len(lines) :]
