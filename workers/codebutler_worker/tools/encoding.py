"""The bytes of a file as text, and back again without changing any that stand for the same. Pure."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from codebutler_worker.tools.port import ToolError

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
LATIN = "latin-1"


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a text is written: ``name`` as Python calls it, after ``mark``, the byte order mark."""

    name: str = "utf-8"
    mark: bytes = b""

    @property
    def told(self) -> str:
        """For people."""
        return f"{self.name} with a byte order mark" if self.mark else self.name

    def encoded(self, text: str) -> bytes:
        """The bytes. Raises ToolError for a character that it does not have."""
        try:
            return self.mark + text.encode(self.name)
        except UnicodeEncodeError as error:
            char = error.object[error.start]
            raise ToolError(
                f"the file is {self.name}, which has no {char!r}: do without it, or convert the file first"
            ) from None


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text, and how it is written."""

    text: str
    encoding: Encoding = Encoding()


def decoded(data: bytes) -> Decoded:
    """What the bytes say: UTF-8, or UTF-16 with its mark, else Latin-1. Raises ToolError for what is no text."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            try:
                return _text(data[len(mark) :].decode(name), Encoding(name, mark))
            except UnicodeDecodeError:
                break
    try:
        return _text(data.decode(), Encoding())
    except UnicodeDecodeError:
        return _text(data.decode(LATIN), Encoding(LATIN))


def _text(text: str, encoding: Encoding) -> Decoded:
    if "\0" in text:
        raise ToolError("not a text file")
    return Decoded(text, encoding)
