"""What a file is, by its content, and what it may be called."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.domain.model import File
from codebutler.text.wording import format_size
from codebutler_worker.conversation.attachments import NAME_CHARS, audio_name, safe_name
from codebutler_worker.media.files import SNIFF_BYTES, is_voice, kind_of


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNG\r\n\x1a\nrest", "image"),
        (b"\xff\xd8\xff\xe0", "image"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image"),
        (b"\0\0\0\x18ftypheic", "image"),
        (b"%PDF-1.7\n%\xe2\xe3", "pdf"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "audio"),
        (b"\0\0\0\x18ftypM4A ", "audio"),
        (b"\0\0\0\x18ftypisom", "audio"),
        (b"\x1aE\xdf\xa3webm", "audio"),
        (b"fn main() {}\n", "text"),
        ("héllo ✓ \x1b[31mred".encode(), "text"),
        ("“quoted”".encode("cp1252"), "text"),
        ("utf-16".encode("utf-16"), "text"),
        (b"", "text"),
        (b"a" * (SNIFF_BYTES - 1) + "é".encode(), "text"),
        (b"PK\x03\x04zip", "data"),
        (b"\x7fELF\x02\x01\x01\0", "data"),
        (b"MZ\x90\0", "data"),
        (b"\x1f\x8b\x08\0gzip", "data"),
        (b"text with a \0 in it", "data"),
    ],
)
def test_content_decides(content: bytes, kind: str) -> None:
    assert kind_of(content) == kind


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("my report (1).pdf", "my_report_1_.pdf"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        (".bashrc", "bashrc"),
        ("-rf", "rf"),
        ("..", "file"),
        ("a\nb\0c.txt", "a_b_c.txt"),
        ("naïve.txt", "naïve.txt"),
        ("x" * 200 + ".tar.gz", "x" * (NAME_CHARS - 3) + ".gz"),
        ("$(reboot).sh", "reboot_.sh"),
        ("", "file"),
    ],
)
def test_names_become_harmless(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@given(st.text(max_size=300))
def test_any_name_is_one_harmless_component(name: str) -> None:
    safe = safe_name(name)
    assert 0 < len(safe) <= NAME_CHARS
    assert PurePosixPath(safe).parts == (safe,)
    assert safe[0] not in ".-"
    assert safe.isprintable()


@pytest.mark.parametrize("letter", ["a", "é", "漢", "\U00010331"])
def test_a_long_name_fits_into_a_directory_behind_a_files_id(letter: str, tmp_path: Path) -> None:
    file_id = "000000000051.9007199254740991-0"  # the longest that a chat has
    for name in (f"{letter * 300}.docx", letter * 300, f"{letter * 300}.{letter * 12}"):
        (tmp_path / f"{file_id}-{safe_name(name)}").touch()
    assert safe_name(f"{letter * 300}.docx").endswith(f"{letter}.docx")


def test_voice_messages_are_told_by_the_chat_or_their_type() -> None:
    assert is_voice(File(id="F1", mimetype="video/mp4", is_voice=True))
    assert is_voice(File(id="F1", mimetype="audio/mp4"))
    assert not is_voice(File(id="F1", name="film.mp4", mimetype="video/mp4"))


def test_a_clip_gets_an_ending_the_service_knows() -> None:
    assert audio_name("audio_message.m4a", "") == "audio_message.m4a"
    assert audio_name("clip", "audio/webm") == "clip.webm"
    assert audio_name("", "") == "voice.m4a"


def test_sizes_read_well() -> None:
    assert [format_size(900), format_size(12_345), format_size(3_400_000)] == ["900 B", "12 kB", "3.4 MB"]
