"""Buttons that a worker puts on its own messages, and what they decide when somebody presses them."""

from __future__ import annotations

from codebutler.chat.layout import Placed, packed
from codebutler.chat.telegram.records import HOME
from codebutler.domain.message import ALLOW_ACTION, Button, said
from codebutler.domain.model import Post
from tests.telegram.room import Room
from tests.telegram.server import FORUM, GROUP, BotServer


async def test_no_button_of_a_worker_decides_in_another_repository(room: Room, server: BotServer) -> None:
    """A button on somebody's home names the place of what it decides. A worker names its own operations."""
    elsewhere = Placed(channel=f"tg:{FORUM}", message="000000000042", value="r1")
    innocent = said("All done.", Button("Thanks", ALLOW_ACTION, packed(elsewhere)))
    await room.sender.deliver(f"tg:{GROUP}", HOME, Post(message=innocent))
    (message,) = server.telegram.own(GROUP)
    server.press(GROUP, message["message_id"], "Thanks")
    await room.until(lambda: room.clicks)
    assert [click.channel for click in room.clicks] == [f"tg:{GROUP}"]
