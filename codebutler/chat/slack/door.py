"""Where Slack's envelopes come in: payload to event, event to intake. Returning means: acknowledge."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from codebutler.chat.port import Identity
from codebutler.chat.slack.fields import Ignored, PayloadError
from codebutler.chat.slack.forms import form_refused
from codebutler.chat.slack.frames import Envelope
from codebutler.chat.slack.interactive import in_vain, is_at_home, is_form
from codebutler.chat.slack.payloads import HomeOpened, Notice, parse_envelope
from codebutler.errors import ProtocolError
from codebutler.intake.intake import Intake, Outcome
from codebutler.model import ButtonClicked

log = logging.getLogger("codebutler.chat.slack.door")

_NOT_TAKEN: Mapping[Outcome, str] = {
    "refused": "You are not authorized to decide this.",
    "ignored": "This channel is not served any more: nothing was decided.",
}
"""To somebody who has sent a form; what they wrote stays in it."""


class Door:
    """The socket's handler. An envelope that cannot be kept raises, so that Slack sends it again."""

    def __init__(self, intake: Intake, identity: Identity, on_notice: Callable[[Notice], None]) -> None:
        self._intake = intake
        self._identity = identity
        self._on_notice = on_notice

    async def handle(self, envelope: Envelope) -> dict[str, Any] | None:
        """Returns when the event is on disk or is none of ours; a malformed one is logged and given up."""
        try:
            event = parse_envelope(envelope.type, envelope.payload, self._identity)
        except (PayloadError, ProtocolError) as error:
            log.warning("an unreadable %s payload was dropped: %s", envelope.type, error)
            return None
        if isinstance(event, Notice):
            self._on_notice(event)
            return None
        if isinstance(event, Ignored):
            log.debug("ignored: %s", event.reason)
            return None
        outcome = await self._intake.accept(event, missed=envelope.retry_attempt > 0)
        if why := _NOT_TAKEN.get(outcome) if is_form(envelope.payload) else None:
            return form_refused(why)
        if outcome == "ignored" and isinstance(event, ButtonClicked):
            self._on_notice(in_vain(event, envelope.payload))
        elif isinstance(event, ButtonClicked) and is_at_home(envelope.payload):
            # What they pressed may be decided long since: they see how things stand now.
            self._on_notice(HomeOpened(event.user))
        return None
