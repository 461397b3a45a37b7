"""Values that are shown as their bytes or with every character escaped, as programs write them."""

from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote

import pytest

from codebutler.text.redact import REDACTED, Redactor

PLAIN = "hQ3kT9vLmZ2xWc7RbN5yGd8sJf4pAu6eXq1oKi0"
SIGNS = "Zq7-held-val/ue+0123456&789-<xyz>'\"äö=T"
LONG = "x = 1\n" * 8_000


def dump(data: bytes, group: int, look: str) -> str:
    """As `xxd` (groups of two, colon) and `hexdump -C` (of one) print it."""
    lines = []
    for at in range(0, len(data), 16):
        piece = data[at : at + 16]
        shown = " ".join(piece[one : one + group].hex() for one in range(0, len(piece), group))
        lines.append(look.format(at, shown, "".join(chr(one) if 32 <= one < 127 else "." for one in piece)))
    return "\n".join(lines)


@pytest.mark.parametrize("value", [PLAIN, SIGNS])
@pytest.mark.parametrize("around", ["", LONG])
def test_escapes_and_dumps_are_looked_through(value: str, around: str) -> None:
    raw = value.encode()
    lower = re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quote(value, safe=""))
    every = (
        lower,
        quote(quote(value, safe=""), safe=""),
        "".join(f"%{one:02X}" for one in raw),
        "".join(f"\\x{one:02x}" for one in raw),
        "".join(f"\\{one:03o}" for one in raw),
        "".join(f"\\u{ord(sign):04x}" for sign in value),
        "".join(f"&#{ord(sign)};" for sign in value),
        "".join(f"&#x{ord(sign):x};" for sign in value),
        ":".join(f"{one:02x}" for one in raw),
        "-".join(f"{one:02X}" for one in raw),
        ", ".join(f"0x{one:02x}" for one in raw),
        str(list(raw)),
        html.escape(value),
        html.escape(value).replace("&#x27;", "&#39;"),
        json.dumps(value, ensure_ascii=False).replace("/", "\\/"),
        json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
        json.dumps(json.dumps(value)),
        repr(raw),
        base64.b32encode(raw).decode(),
        base64.b64encode(value.encode("utf-16-le")).decode(),
        value.upper(),
        value.lower(),
        dump(b"KEY=" + raw + b"\n", 2, "{:08x}: {:40} {}"),
        dump(b"KEY=" + raw + b"\n", 1, "{:08x}  {:48}  |{}|"),
        dump(raw, 1, "{:06x} {:47}  >{}<"),
    )
    redactor = Redactor([value])
    shown = [redactor.redact(f"{around}see\n{each}\nthere\n{around}") for each in every]
    assert [each for each, told in zip(every, shown, strict=True) if REDACTED not in told] == []
    assert [told for told in shown if any(value[at : at + 8] in told for at in range(len(value) - 7))] == []


@pytest.mark.parametrize(
    "gap", ["\u034f", "\ufe01", "\U000e0020", "\u3164", "\u2003", "\u3000", "\x07", "\x7f", "\n> "]
)
def test_what_nobody_sees_hides_nothing(gap: str) -> None:
    assert Redactor([PLAIN]).redact(f"a {gap.join(PLAIN)} b") == f"a {REDACTED} b"


@pytest.mark.parametrize(
    "text",
    [
        dump(bytes(range(200)), 2, "{:08x}: {:40} {}"),
        "\\x41\\x42\\x43\\x44\\x45\\x46\\x47\\x48",
        "00:1a:2b:3c:4d:5e and fe80::1:2:3:4:5:6",
        "%41%42%43%44%45%46%47",
        "0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07",
        "[10, 20, 30, 40, 50, 60, 70, 80]",
    ],
)
def test_other_bytes_stay(text: str) -> None:
    assert Redactor([PLAIN]).redact(text) == text
    assert Redactor([PLAIN]).redact(LONG + text) == LONG + text
