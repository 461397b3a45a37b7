"""What people are told of files and voice messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codebutler.protocol.messages import MAX_FETCH_BYTES
from codebutler.text.markup import clip, plain
from codebutler_worker.present.lines import code, one_line
from codebutler_worker.store.rows import AttachmentRow

SHOWN_TRANSCRIPT_CHARS = 3_000
NOTHING_LEFT = "Nothing of what you sent could be used: see above, then send it again."

_WHY: Mapping[str, str] = {
    "empty": "nothing of it came",
    "file_not_found": "it is not shared in this channel any more",
    "login_page": "the chat does not let me read it (in Slack: has the app files:read, and is it in this channel?)",
    "missing_scope": "the Slack app needs the scope files:read",
    "silence": "nothing is said in it",
    "timeout": "it took too long",
    "too_large": f"it is larger than {MAX_FETCH_BYTES // 2**20} MB",
    "untrusted_host": "it is not stored in the chat",
}


def why_not(reason: str) -> str:
    """A code of the download as words."""
    return _WHY.get(reason, f"it could not be fetched ({one_line(reason, 60) or 'unknown'})")


def left_out(file: AttachmentRow, why: str) -> str:
    """The line about a file that the turn goes without."""
    sign, what = ("🎤", "the voice message") if file.is_voice else ("📎", code(file.name or file.file_id, 80))
    return f"{sign} I go on without {what}: {plain(one_line(why, 300))}."


def not_transcribed(why: str) -> str:
    """The line about a recording that the agent gets as a file only."""
    return f"🎤 The recording could not be transcribed: {plain(one_line(why, 300))}. The agent gets it as a file."


def heard(transcript: str) -> str:
    """The transcript as it goes to the agent, for people to check."""
    return f"🎤 “{clip(plain(transcript), SHOWN_TRANSCRIPT_CHARS)}”"


def unsent(path: str, why: str) -> str:
    """The line about a file that an agent wanted to send."""
    return f"📎 {code(path, 120)} was not sent: {plain(one_line(why, 200))}."


def only_files(names: Sequence[str]) -> str:
    """The answer of an agent that sent files and said nothing."""
    return "📎 " + ", ".join(code(name, 80) for name in names)
