"""Opens the form that asks why not, at once: the right to open it lives three seconds (Slack: trigger_id).

Nothing is decided before the form is sent, so nothing has to be kept. What does not open, or a chat that has no forms,
is said in the thread, where a no with its reason can be written as well.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from codebutler.chat.port import Forms
from codebutler.chat.slack.forms import Placed, reason_form
from codebutler.chat.slack.interactive import FormAsked, PressedInVain
from codebutler.domain.errors import ChatError, StoreError
from codebutler.intake.intake import Intake
from codebutler.platform.tasks import Tasks

IN_WORDS = "Write `no, because …` here."
INSTEAD = "The form did not open in time: press the button again, or write `no, because …` here."

log = logging.getLogger("codebutler.chat.slack.reasons")


class Reasons:
    """``notice`` says something in a channel and thread; ``in_vain`` is told who pressed for nothing."""

    def __init__(
        self,
        forms: Forms | None,
        intake: Intake,
        notice: Callable[[str, str, str | None], Awaitable[None]],
        tasks: Tasks,
        in_vain: Callable[[PressedInVain], None],
    ) -> None:
        self._forms = forms
        self._intake = intake
        self._notice = notice
        self._tasks = tasks
        self._in_vain = in_vain

    def asked(self, wish: FormAsked) -> None:
        """Somebody has pressed the button; returns at once."""
        self._tasks.start(self._open(wish), name=f"form for {wish.click.user}")

    async def _open(self, wish: FormAsked) -> None:
        click = wish.click
        place = Placed(
            channel=click.channel,
            message_ts=click.message_ts,
            value=click.value,
            thread_ts=click.thread_ts,
        )
        try:
            if not self._intake.serves(click):
                self._in_vain(PressedInVain(click.user, click.channel, click.thread_ts, wish.at_home))
                return
            if not await self._intake.admits(click):
                return
            if self._forms is None:
                await self._notice(click.channel, IN_WORDS, click.thread_ts or click.message_ts)
                return
            await self._forms.open_form(wish.trigger_id, reason_form(place))
        except (ChatError, StoreError) as error:
            log.warning("a form could not be opened: %s", error)
            await self._notice(click.channel, INSTEAD, click.thread_ts or click.message_ts)
