"""Getting a secret out piece by piece: what reaches people never holds eight characters of it in a row.

Not promised, and so not tried: a secret that is spelled backwards, letter by letter, encrypted or compressed.
"""

from __future__ import annotations

import base64
import gzip
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.slack.render import rendered
from codebutler.domain.message import ApprovalCard, Button, Message, PermissionRequest
from codebutler.domain.model import Post, Upload
from codebutler.text.disguised import CUT
from codebutler.text.markup import plain
from codebutler.text.redact import REDACTED, Redactor

SECRET = "Zq7-held-value-0123456789-äö/+&x"
TOKEN = "ghp_" + "a1B2c3D4e5" * 4
AROUND = "the value is {} as you see"


def shows(secret: str, *texts: str) -> bool:
    """Whether eight characters of it stand in one of the texts."""
    pieces = {secret[at : at + 8] for at in range(len(secret) - 7)}
    return any(piece in text for text in texts for piece in pieces)


def spellings(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        raw.hex(),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
    ]


@pytest.mark.parametrize("shown", spellings(SECRET))
def test_two_messages_with_a_half_each(shown: str) -> None:
    text = AROUND.format(shown)
    redactor = Redactor([SECRET])
    for place in range(1, len(text)):
        halves = redactor.redact(text[:place]), redactor.redact(text[place:])
        assert not shows(shown, *halves), place


@pytest.mark.parametrize("before", ["", "x", "xy"])
def test_two_messages_of_base64_around_it(before: str) -> None:
    secret = "Vq8-rT5kLw0+zN3/pJ7xBd1cHs"
    whole = base64.b64encode(f"{before}{secret} tail".encode()).decode()
    core = whole[-(-len(before) * 8 // 6) : (len(before) + len(secret)) * 8 // 6]
    redactor = Redactor([secret])
    for place in range(1, len(whole)):
        assert not shows(core, redactor.redact(whole[:place]), redactor.redact(whole[place:])), place


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
def test_a_line_that_was_cut_short(secret: str) -> None:
    redactor = Redactor([SECRET])
    for place in range(8, len(secret)):
        assert not shows(secret, redactor.redact(f"ran: curl -H {secret[:place]}{CUT}")), place
        assert not shows(secret, redactor.redact(f"{secret[:place]}{CUT}\nand {secret[:place]}{CUT} more")), (
            place
        )


@pytest.mark.parametrize(
    "text",
    [
        f"wait{CUT}",
        f"npm_config_cache{CUT}",
        f"sk-learn-extra{CUT}",
        "ends with npm_config_cache",
        f"{CUT}{CUT}{CUT}",
        CUT,
        "",
    ],
)
def test_ordinary_text_with_an_ellipsis_stays(text: str) -> None:
    assert Redactor([SECRET]).redact(text) == text


@given(
    st.text(alphabet=f"abcZq7-held{CUT} \n", max_size=60),
    st.integers(0, len(SECRET)),
    st.integers(0, len(SECRET)),
)
def test_whatever_is_shown_twice_over_hides_the_same(text: str, start: int, end: int) -> None:
    redactor = Redactor([SECRET])
    once = redactor.redact(f"{SECRET[start:]}{text}{SECRET[:end]}")
    assert redactor.redact(once) == once
    assert SECRET not in once


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32"])
def test_a_files_content(secret: str, encoding: str) -> None:
    content = AROUND.format(secret).encode(encoding)
    sent = Editor(Redactor([SECRET]).redact).edited(Upload(filename="a.txt", content=content))
    assert isinstance(sent, Upload)
    assert AROUND.format(REDACTED).encode() in sent.content
    assert not shows(
        secret, sent.content.decode("latin-1"), sent.content.replace(b"\0", b"").decode("latin-1")
    )


def test_a_file_made_to_look_like_no_text() -> None:
    content = b"\xff\xfe\xfa\x00" + f"key={TOKEN} end".encode() + b"\x80\x81"
    sent = Editor(Redactor().redact).edited(Upload(filename="a.bin", content=content))
    assert isinstance(sent, Upload)
    assert sent.content == b"\xff\xfe\xfa\x00key=[redacted] end\x80\x81"


def test_a_file_with_nothing_to_hide_is_not_touched() -> None:
    content = "über alles: näher\n".encode("utf-16") * 30
    sent = Editor(Redactor([SECRET]).redact).edited(Upload(filename="a.txt", content=content))
    assert isinstance(sent, Upload)
    assert sent.content == content


def test_a_picture_or_an_archive_is_not_touched() -> None:
    content = gzip.compress(TOKEN.encode() * 50) + bytes(range(256)) * 40
    sent = Editor(Redactor([SECRET]).redact).edited(Upload(filename="a.gz", content=content))
    assert isinstance(sent, Upload)
    assert sent.content == content


def test_the_name_of_a_file() -> None:
    upload = Upload(filename=f"{TOKEN}.txt", title=f"about {SECRET}", comment=TOKEN, content=b"")
    sent = Editor(Redactor([SECRET]).redact).edited(upload)
    assert isinstance(sent, Upload)
    assert (sent.filename, sent.title, sent.comment) == ("[redacted].txt", "about [redacted]", REDACTED)


def test_every_text_of_a_message() -> None:
    asked = PermissionRequest(id=TOKEN, texts=(TOKEN, SECRET), scope=SECRET, votes=(TOKEN,), verdict=SECRET)
    card = Message(card=ApprovalCard((asked,)), markdown=TOKEN, buttons=(Button(SECRET, TOKEN, SECRET),))
    sent = Editor(Redactor([SECRET]).redact).edited(Post(message=card))
    assert not shows(TOKEN, str(sent))
    assert not shows(SECRET, str(sent))


def test_no_escape_hides_a_secret() -> None:
    for text in (
        plain(f"it is {TOKEN}."),
        f"it is {TOKEN[:4]}\\_{TOKEN[4:]}",
        f"{SECRET[:3]}\\-{SECRET[3:]}",
    ):
        hidden = text.replace("\\", "")
        redactor = Redactor([SECRET, hidden.removeprefix("it is ").removesuffix(".")])
        for is_foreign in (False, True):
            sent = Editor(redactor.redact).edited(Post(message=Message(markdown=text, is_foreign=is_foreign)))
            assert REDACTED in rendered(sent.message)[0].replace("\\", "")  # type: ignore[union-attr]  # a post
