"""A press for nothing is answered where it was made."""

from __future__ import annotations

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.slack.connection import NOT_SERVED, UnservedPresses
from codebutler.chat.slack.forms import PressedInVain
from codebutler.domain.errors import ChatError
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.platform.tasks import Tasks
from tests.clock import ManualClock
from tests.memory_chat import MemoryChat
from tests.notes import Notes


class Pressed:
    """What becomes of a press."""

    def __init__(self) -> None:
        self.chat = MemoryChat()
        self.homes: list[str] = []
        self.broken: list[str] = []

    async def press(self, *, at_home: bool) -> None:
        tasks = Tasks(lambda name, error: self.broken.append(f"{name}: {error}"))
        async with Sender(self.chat, ManualClock(), Editor(str), Notes()) as sender:
            vain = UnservedPresses(self.homes.append, sender, tasks)
            vain.pressed(PressedInVain("U1", "C1", "5.1", at_home=at_home))
            await tasks.close(10)


async def test_in_app_home_it_is_told_there() -> None:
    pressed = Pressed()
    await pressed.press(at_home=True)
    assert (pressed.homes, pressed.chat.done) == (["U1"], [])


async def test_in_a_thread_only_who_pressed_sees_it() -> None:
    pressed = Pressed()
    await pressed.press(at_home=False)
    assert pressed.homes == []
    (done,) = pressed.chat.done
    assert (done.channel, done.operation) == (
        "C1",
        Post(message=said(NOT_SERVED), thread="5.1", only_for="U1"),
    )


async def test_where_we_may_not_write_nothing_breaks() -> None:
    pressed = Pressed()
    pressed.chat.fail_next("whisper", ChatError("no", "user_not_in_channel"))
    await pressed.press(at_home=False)
    assert (pressed.chat.done, pressed.broken) == ([], [])
