"""Our connection to the workspace: our identity, the socket that brings events to the intake, and catch-up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from codebutler.chat.absence_notice import AbsenceNotice
from codebutler.chat.port import identified
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.catchup import CatchUp
from codebutler.chat.slack.link import EventHandler
from codebutler.chat.slack.payloads import Notice
from codebutler.chat.slack.presence import EchoProbe, Presence
from codebutler.chat.slack.socket import SocketModeClient, SocketStatus
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatAuthError, CodeButlerError
from codebutler.intake.intake import Intake
from codebutler.platform.tasks import Tasks

log = logging.getLogger("codebutler.chat.slack.connection")


class Care(Struct, frozen=True):
    """The parts that make sure that no event is missed: catch-up, the test for a dead connection, and the
    absence notice."""

    catch_up: CatchUp
    heartbeat: EchoProbe
    absence_notice: AbsenceNotice
    on_notice: Callable[[Notice], None]


class SlackConnection:
    """Receives a workspace's events. ``run`` until ``stop``; it also ends by itself if a retry is pointless, see
    ``status``.

    ``connected`` is set once the first connection is ready.
    """

    def __init__(
        self,
        api: SlackApi,
        app_token: str,
        intake: Intake,
        care: Care,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._api = api
        self._app_token = app_token
        self._intake = intake
        self._catch_up = care.catch_up
        self._heartbeat = care.heartbeat
        self._absence_notice = care.absence_notice
        self._on_notice = care.on_notice
        self._clock = clock
        self._rng = rng
        self._trouble = ""
        self._missing = False
        self._shared = False
        self._client: SocketModeClient | None = None
        self.connected = asyncio.Event()

    @property
    def status(self) -> SocketStatus:
        """The socket's current state."""
        if self._client is None:
            return SocketStatus(state="connecting", trouble=self._trouble)
        return replace(self._client.status, catching_up=self._catch_up.is_busy)

    async def run(self) -> None:
        """Find out our identity, then receive. Raises ChatAuthError if Slack refuses a token at the start."""
        me = await identified(self._api.identity, self._clock, self._rng, self._troubled)
        events = EventHandler(self._intake, me, self._on_notice)
        client = self._client = SocketModeClient(
            self._open, events.handle, self._clock, self._rng, self._note
        )
        self._lose()
        has_missed = partial(self._catch_up.has_missed, me=me)
        presence = Presence(
            self._catch_up.channels,
            lambda: client.status,
            client.rebuild,
            has_missed,
            self._heartbeat.beat,
            self._clock,
        )
        helpers = Tasks(lambda name, error: log.error("the %s failed: %r", name, error))
        helpers.start(self._catch_up.run(me), name="catch-up")
        helpers.start(presence.run(), name="presence")
        helpers.start(self._absence_notice.run(), name="absence notice")
        try:
            await client.run()
        finally:
            await helpers.close(0)
        if client.status.state == "auth_failed" and client.status.last_event_age_s is None:
            raise ChatAuthError(client.status.trouble)

    def look_again(self) -> None:
        """The channels have changed: keep track of the new ones, too."""
        self._catch_up.lost()
        if not self._missing:
            self._catch_up.back()

    def use_token(self, app_token: str) -> None:
        """Use another app-level token from now on."""
        self._app_token = app_token

    async def stop(self) -> None:
        """Take no more events; those being committed are finished and acknowledged."""
        if self._client is not None:
            await self._client.stop()

    async def _open(self) -> str:
        return await self._api.open_connection(self._app_token)

    def _troubled(self, error: CodeButlerError) -> None:
        if str(error) != self._trouble:
            log.warning("no answer from Slack: %s; trying again", error)
        self._trouble = str(error)

    def _note(self, status: SocketStatus) -> None:
        if status.state == "connected" and not self._missing and (status.trouble or self._shared):
            # Another process receives some of the events, or did until now: history shows which.
            self._shared = bool(status.trouble)
            self.look_again()
            return
        log.info("slack %s", status.state.replace("_", " "))
        if status.state == "connected":
            self.connected.set()
            if self._missing:
                self._missing = False
                self._catch_up.back()
                self._absence_notice.back()
        elif status.trouble:
            # Without trouble it is a planned change, during which the old connection keeps working.
            self._lose()

    def _lose(self) -> None:
        if not self._missing:
            self._missing = True
            self._catch_up.lost()
            self._absence_notice.lost()
