"""Names for places that take few letters. Pure."""

from __future__ import annotations

import unicodedata


def unaccented(text: str) -> str:
    """Letters without their accents and dots, ß as ss; what has no such base (日, я) stays as it is.

    Source: Unicode's compatibility decomposition (UAX 15, NFKD).
    """
    decomposed = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))
