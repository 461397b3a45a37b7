"""Typing is shown for as long as something is done, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

from codebutler.chat.telegram.chat import Typing
from codebutler.chat.telegram.messages import Destination
from codebutler.domain.errors import ChatUnreachableError
from tests.clock import ManualClock


class Api:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.is_down = False

    async def call(self, method: str, **given: Any) -> bool:
        assert method == "sendChatAction"
        if self.is_down:
            raise ChatUnreachableError("down")
        self.calls.append(given)
        return True


async def test_it_goes_on_until_it_is_over() -> None:
    api, clock = Api(), ManualClock()
    typing = Typing(api, clock)  # type: ignore[arg-type]
    await typing.show(Destination(-1, topic=48))
    await clock.advance(10)
    assert len(api.calls) == 3
    assert api.calls[0]["message_thread_id"] == 48
    typing.hide(Destination(-1, topic=48))
    await clock.advance(60)
    assert len(api.calls) == 3
    await typing.close()


async def test_it_ends_by_itself_when_nobody_says_more() -> None:
    api, clock = Api(), ManualClock()
    typing = Typing(api, clock)  # type: ignore[arg-type]
    await typing.show(Destination(-1))
    await clock.advance(130)
    shown = len(api.calls)
    assert 20 < shown < 30
    await clock.advance(600)
    assert len(api.calls) == shown
    await typing.close()


async def test_what_cannot_be_shown_is_not_tried_again_and_again() -> None:
    api, clock = Api(), ManualClock()
    typing = Typing(api, clock)  # type: ignore[arg-type]
    api.is_down = True
    with pytest.raises(ChatUnreachableError):
        await typing.show(Destination(-1))
    api.is_down = False
    await typing.show(Destination(-1))
    api.is_down = True
    await clock.advance(30)
    api.is_down = False
    await clock.advance(30)
    assert len(api.calls) == 1
    await typing.close()
