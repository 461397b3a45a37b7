"""A press for nothing is answered where it was made."""

from __future__ import annotations

from codebutler.apphome.vain import NOT_SERVED, Vain
from codebutler.errors import ChatError
from codebutler.model import Post
from codebutler.process.tasks import Tasks
from codebutler.slack.interactive import PressedInVain


class Slack:
    """App Home and the sender."""

    def __init__(self, fault: ChatError | None = None) -> None:
        self.homes: list[str] = []
        self.said: list[tuple[str, Post]] = []
        self.broken: list[str] = []
        self._fault = fault

    def vain(self, user: str) -> None:
        self.homes.append(user)

    async def submit(self, channel: str, op_id: str, operation: Post, *, unsure: bool = False) -> str:
        if self._fault is not None:
            raise self._fault
        self.said.append((channel, operation))
        return "1.1"

    async def press(self, *, at_home: bool) -> None:
        tasks = Tasks(lambda name, error: self.broken.append(f"{name}: {error}"))
        Vain(self, self, tasks).pressed(PressedInVain("U1", "C1", "5.1", at_home=at_home))
        await tasks.close(10)


async def test_in_app_home_it_is_told_there() -> None:
    slack = Slack()
    await slack.press(at_home=True)
    assert (slack.homes, slack.said) == (["U1"], [])


async def test_in_a_thread_only_who_pressed_sees_it() -> None:
    slack = Slack()
    await slack.press(at_home=False)
    assert slack.homes == []
    assert slack.said == [("C1", Post(text=NOT_SERVED, thread_ts="5.1", only_for="U1"))]


async def test_where_we_may_not_write_nothing_breaks() -> None:
    slack = Slack(ChatError("no", "not_in_channel"))
    await slack.press(at_home=False)
    assert (slack.said, slack.broken) == ([], [])
