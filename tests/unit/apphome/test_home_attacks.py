"""What a worker may say of its runs so that a chat refuses the whole page, with the other repositories on it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from codebutler.chat.slack.render import blocks_of
from codebutler.domain.errors import ProtocolError
from codebutler.domain.model import Asked, TurnNote
from codebutler.parent.apphome_page import RepoCard, home
from codebutler.protocol.messages import Overview
from codebutler.protocol.pipe import to_parent_codec
from codebutler.workspace.blocks import checked_blocks

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ODD = "\x01" * 100
ASKED = Asked(id="a", card="1.2", text="Run it?", options=("Yes", "No"), is_question=True, several=True)
RUN = TurnNote(
    state="waiting",
    thread="1.1",
    text="build",
    agent="claude",
    at=NOW.isoformat(),
    id="t1",
    card="1.2",
    asked=(ASKED,),
)


def received(run: TurnNote) -> TurnNote:
    codec = to_parent_codec()
    message = codec.decode(codec.encode(Overview(turns=(run,)))[4:])
    assert isinstance(message, Overview)
    return message.turns[0]


@pytest.mark.parametrize("name", ["id", "card", "thread"])
def test_no_name_is_longer_than_a_button_can_hold(name: str) -> None:
    with pytest.raises(ProtocolError):
        received(msgspec.structs.replace(RUN, **{name: "x" * 101}))
    if name != "thread":
        with pytest.raises(ProtocolError):
            received(
                msgspec.structs.replace(RUN, asked=(msgspec.structs.replace(ASKED, **{name: "x" * 101}),))
            )


@pytest.mark.parametrize(
    "runs",
    [
        (msgspec.structs.replace(RUN, asked=(ASKED, ASKED, ASKED)),),
        (RUN, RUN),
        (
            msgspec.structs.replace(
                RUN, thread=ODD, card=ODD, asked=(msgspec.structs.replace(ASKED, id=ODD, card=ODD),)
            ),
        ),
        (msgspec.structs.replace(RUN, state="interrupted", thread=ODD, card=ODD, id=ODD, asked=()),),
    ],
)
def test_the_page_is_one_that_slack_takes(runs: tuple[TurnNote, ...]) -> None:
    hostile = RepoCard(name="shop", channel="C0123456789", worker="running", turns=tuple(map(received, runs)))
    assert checked_blocks(blocks_of(home([hostile], "", NOW)), limit=100)
