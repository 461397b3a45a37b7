"""An agent's answer as operations: in parts, or as a file if very long; and notices about files. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from codebutler.domain.message import Message
from codebutler.domain.model import Operation, Post, Upload
from codebutler.domain.refs import NO_PERSON, MessageRef, PersonRef
from codebutler.protocol.messages import MAX_FETCH_BYTES
from codebutler.text.amounts import amount
from codebutler.text.envelope import Envelope
from codebutler.text.markdown import beginning, closed, split_markdown, whole_tables
from codebutler.text.markup import clip, plain
from codebutler_worker.agents.backend import Usage
from codebutler_worker.present.lines import code, count, one_line, span
from codebutler_worker.store.rows import AttachmentRow

FILE_OVER_CHARS = 10_000
FILE_OVER_PARTS = 10
MAX_ANSWER_CHARS = 2_000_000
NO_TEXT = "(no text)"
IN_FILE = "_Full answer attached._"
MODEL_CHARS = 60
Redact = Callable[[str], str]
_NOT_OF_A_NAME = re.compile(r"[^\w.:/@+-]", re.ASCII)
SIGNS: Mapping[str, str] = MappingProxyType(
    {"progress": "🔄", "question": "🤔", "warning": "⚠️", "done": "✅", "error": "❌"}
)
INCOMPLETE = "⚠️ (incomplete)"
SHOWN_TRANSCRIPT_CHARS = 3_000
NOTHING_LEFT = "I could not use anything you sent: see above, then send it again."
_WHY: Mapping[str, str] = {
    "empty": "it is empty",
    "file_not_found": "it is no longer shared in this channel",
    "login_page": "the chat does not let me read it (check that the app may read files and is in this channel)",
    "missing_scope": "the app lacks the permission to read files (`codebutler doctor` names it)",
    "silence": "it contains no speech",
    "timeout": "it took too long",
    "too_large": f"it is larger than {MAX_FETCH_BYTES // 2**20} MB",
    "untrusted_host": "it is not stored in the chat",
}


def footer(usage: Usage, elapsed_s: float, model: str = "") -> str:
    """``_claude-opus-5-5_ • _tokens: 1234 in / 5678 out • 34s • 3 turns • $0.12_``; an unknown cost is left
    out. Only the time if no model was asked. Turns are the model's: how often it answered in this run."""
    if usage == Usage():
        return f"_{span(elapsed_s)}_"
    # An underscore at an end would end the italics.
    name = _NOT_OF_A_NAME.sub("", model)[:MODEL_CHARS].strip("_")
    parts = [
        f"tokens: {usage.input_tokens} in / {usage.output_tokens} out",
        span(elapsed_s),
        count(usage.turns, "turn"),
    ]
    if usage.cost_usd is not None:
        parts.append(amount("usd", usage.cost_usd))
    return f"_{name}_ • _{' • '.join(parts)}_" if name else f"_{' • '.join(parts)}_"


def answer(
    markdown: str,
    foot: str,
    thread: MessageRef | None,
    limit: int,
    mention: PersonRef = NO_PERSON,
    *,
    redact: Redact,
) -> tuple[Operation, ...]:
    """The posts (each of at most ``limit`` characters, the last one with the footer), and a file for a very
    long text.

    The last post mentions ``mention``. The first one may replace the streamed answer, unless it has to
    mention somebody: an edit notifies nobody.
    """
    # Before it is cut: the second half of a key does not look like one any more.
    text = redact(markdown[:MAX_ANSWER_CHARS]).strip() or NO_TEXT
    if len(text) <= FILE_OVER_CHARS:
        text = closed(text)
    parts = [text]
    if len(text) > limit:
        parts = split_markdown(whole_tables(text[: FILE_OVER_CHARS + 1], limit), limit)
    file: tuple[Upload, ...] = ()
    if len(text) > FILE_OVER_CHARS or len(parts) > FILE_OVER_PARTS:
        head = split_markdown(beginning(text), limit - len(IN_FILE) - len(foot) - 4)[0]
        parts = [f"{head}\n\n{IN_FILE}"]
        content = text.encode("utf-8", "replace")
        file = (Upload(filename="answer.md", title="Answer", content=content, thread=thread),)
    elif len(parts[-1]) + len(foot) + 2 > limit:
        parts[-1:] = split_markdown(parts[-1], limit - len(foot) - 2)
    parts[-1] = f"{parts[-1]}\n\n{foot}"
    said = [Post(message=Message(markdown=part, is_foreign=True), thread=thread) for part in parts]
    said[-1] = replace(said[-1], mention=mention)
    said[0] = replace(said[0], in_place=not said[0].mention)
    return *said, *file


def posts(envelope: Envelope, thread: MessageRef | None, limit: int, redact: Redact) -> tuple[Post, ...]:
    """The envelope's text behind its sign, in posts of at most ``limit`` characters; none for an empty one."""
    if not envelope.body:
        return ()
    said = envelope.body if envelope.complete else f"{INCOMPLETE} {envelope.body}"
    sign = SIGNS.get(envelope.type, "")
    # Models like to write the sign themselves.
    text = said if not sign or said.startswith(sign) else f"{sign} {said}"
    # Before it is cut: the second half of a key does not look like one any more.
    parts = split_markdown(redact(text), limit)
    return tuple(Post(message=Message(markdown=part, is_foreign=True), thread=thread) for part in parts)


def why_not(reason: str) -> str:
    """A download error code in words."""
    return _WHY.get(reason, f"it could not be fetched ({one_line(reason, 60) or 'unknown'})")


def left_out(file: AttachmentRow, why: str) -> str:
    """The line about a file that the run continues without."""
    sign, what = ("🎤", "the voice message") if file.is_voice else ("📎", code(file.name or file.file_id, 80))
    return f"{sign} Continuing without {what}: {plain(one_line(why, 300))}."


def not_transcribed(why: str) -> str:
    """The line about a recording that the agent gets as a file only."""
    return f"🎤 The recording could not be transcribed: {plain(one_line(why, 300))}. The agent gets it as a file."


def heard(transcript: str) -> str:
    """The transcript that the agent gets, for people to check."""
    return f"🎤 “{clip(plain(transcript), SHOWN_TRANSCRIPT_CHARS)}”"


def unsent(path: str, why: str) -> str:
    """The line about a file that an agent wanted to send."""
    return f"📎 {code(path, 120)} was not sent: {plain(one_line(why, 200))}."


def only_files(names: Sequence[str]) -> str:
    """The answer of an agent that sent files and said nothing."""
    return "📎 " + ", ".join(code(name, 80) for name in names)
