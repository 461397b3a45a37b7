"""What kind of file it is, judged by its content, and a safe name for it. Pure.

A name and a declared type are only claims; the first bytes decide.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Literal

from codebutler.domain.model import File

Kind = Literal["image", "pdf", "text", "audio", "data"]

NAME_CHARS = 80
SNIFF_BYTES = 64 * 1024
_SAFE = re.compile(r"[^\w.+-]+")
_TEXT_CONTROLS = frozenset("\n\r\t\f\v\b\x1b")

_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"GIF87a", "image"),
    (b"GIF89a", "image"),
    (b"%PDF-", "pdf"),
    (b"ID3", "audio"),
    (b"\xff\xfb", "audio"),
    (b"\xff\xf3", "audio"),
    (b"\xff\xf2", "audio"),
    (b"OggS", "audio"),
    (b"fLaC", "audio"),
    (b"\x1aE\xdf\xa3", "audio"),  # Matroska and WebM
)
# In RIFF and ISO media files the type follows a length.
_BOXED: tuple[tuple[bytes, bytes, Kind], ...] = (
    (b"RIFF", b"WEBP", "image"),
    (b"RIFF", b"WAVE", "audio"),
)
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"avif", b"mif1"})
_AUDIO_ENDINGS = {
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/webm": ".webm",
    "video/webm": ".webm",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
}
# Whisper recognizes formats by these extensions.
_KNOWN_AUDIO = frozenset({".flac", ".m4a", ".mp3", ".mp4", ".mpeg", ".mpga", ".oga", ".ogg", ".wav", ".webm"})


def kind_of(content: bytes) -> Kind:
    """The kind of the content; "data" is everything else: archives, databases, programs."""
    for magic, kind in _MAGIC:
        if content.startswith(magic):
            return kind
    for outer, inner, kind in _BOXED:
        if content.startswith(outer) and content[8:12] == inner:
            return kind
    if content[4:8] == b"ftyp":
        return "image" if content[8:12] in _HEIF_BRANDS else "audio"
    return "text" if _is_text(content) else "data"


def is_voice(file: File) -> bool:
    """Whether it is a voice message: a clip of the chat's own recorder, whatever its type, or any sound."""
    return file.is_voice or file.mimetype.lower().startswith("audio/")


def safe_name(name: str, fallback: str = "file") -> str:
    """The name as one harmless path component: no separators, no leading dot or dash, not too long."""
    last = PurePosixPath(unicodedata.normalize("NFC", name).replace("\\", "/")).name
    cleaned = _SAFE.sub("_", last).lstrip("._-").rstrip(".")
    stem, dot, ending = cleaned.rpartition(".")
    if dot and len(ending) <= 12:
        return f"{stem[: NAME_CHARS - len(ending) - 1]}.{ending}" if stem else cleaned
    return cleaned[:NAME_CHARS] or fallback


def audio_name(name: str, mimetype: str) -> str:
    """The clip's name with an extension that a transcription service knows."""
    safe = safe_name(name, "voice")
    if PurePosixPath(safe).suffix.lower() in _KNOWN_AUDIO:
        return safe
    return f"{PurePosixPath(safe).stem}{_AUDIO_ENDINGS.get(mimetype.lower(), '.m4a')}"


def size(size_bytes: int) -> str:
    """``900 B``, ``12 kB``, ``3.4 MB``, ``5.0 GB``."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    if size_bytes < 1_000_000:
        return f"{size_bytes // 1000} kB"
    if size_bytes < 1_000_000_000:
        return f"{size_bytes / 1_000_000:.1f} MB"
    return f"{size_bytes / 1_000_000_000:.1f} GB"


def _is_text(content: bytes) -> bool:
    head = content[:SNIFF_BYTES]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True  # UTF-16, as some editors write it
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The sample may end inside a character; any other error means it is not UTF-8.
        if len(head) < SNIFF_BYTES or error.start < len(head) - 3:
            return _is_latin(head)
        text = head[: error.start].decode("utf-8")
    return _printable(text)


def _is_latin(head: bytes) -> bool:
    """Whether it is an old one-byte encoding, which can only be told by its control characters."""
    return all(byte >= 0x20 or chr(byte) in _TEXT_CONTROLS for byte in head)


def _printable(text: str) -> bool:
    return all(unicodedata.category(char) != "Cc" or char in _TEXT_CONTROLS for char in text)
