"""An envelope of an agent as posts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from codebutler.message import Message
from codebutler.model import Post
from codebutler.text.envelope import Envelope
from codebutler.text.redact import Redactor
from codebutler.text.split import split_markdown

SIGNS: Mapping[str, str] = MappingProxyType(
    {"progress": "🔄", "question": "🤔", "warning": "⚠️", "done": "✅", "error": "❌"}
)
INCOMPLETE = "⚠️ (incomplete)"


def posts(
    envelope: Envelope, thread_ts: str | None, limit: int, redactor: Redactor | None = None
) -> tuple[Post, ...]:
    """The envelope's text behind its sign, in posts of ``limit`` characters at most; none for an empty one."""
    if not envelope.body:
        return ()
    said = envelope.body if envelope.complete else f"{INCOMPLETE} {envelope.body}"
    sign = SIGNS.get(envelope.type, "")
    # Models like to write the sign themselves, too.
    text = said if not sign or said.startswith(sign) else f"{sign} {said}"
    # Before it is cut: the second half of a key does not look like one any more.
    parts = split_markdown((redactor or Redactor()).redact(text), limit)
    return tuple(Post(message=Message(markdown=part, is_foreign=True), thread_ts=thread_ts) for part in parts)
