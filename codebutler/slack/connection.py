"""Our presence in the workspace: who we are, and the socket that brings events to the door."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Protocol

from codebutler.clock import Clock
from codebutler.errors import ChatAuthError, ChatError
from codebutler.intake.intake import Intake
from codebutler.slack.backoff import full_jitter_s
from codebutler.slack.door import Door
from codebutler.slack.port import Identity
from codebutler.slack.socket import SocketModeClient, SocketStatus

IDENTIFY_BASE_S = 1.0
IDENTIFY_CAP_S = 60.0

log = logging.getLogger("codebutler.slack.connection")


class Service(Protocol):
    """What is asked of Slack itself."""

    async def identity(self) -> Identity: ...

    async def open_connection(self, app_token: str) -> str: ...


class SlackConnection:
    """``run`` until ``stop``; it also ends by itself where trying again is pointless, see ``status``.

    ``connected`` is set once the first connection is ready.
    """

    def __init__(self, service: Service, app_token: str, intake: Intake, clock: Clock, rng: Random) -> None:
        self._service = service
        self._app_token = app_token
        self._intake = intake
        self._clock = clock
        self._rng = rng
        self._trouble = ""
        self._client: SocketModeClient | None = None
        self.connected = asyncio.Event()

    @property
    def status(self) -> SocketStatus:
        """How the socket is now."""
        if self._client is None:
            return SocketStatus(state="connecting", trouble=self._trouble)
        return self._client.status

    async def run(self) -> None:
        """Find out who we are, then receive. Raises ChatAuthError if Slack refuses a token at the start."""
        door = Door(self._intake, await self._identify())
        self._client = SocketModeClient(self._open, door.handle, self._clock, self._rng, self._note)
        await self._client.run()
        if self._client.status.state == "auth_failed" and self._client.status.last_event_age_s is None:
            raise ChatAuthError(self._client.status.trouble)

    def use_token(self, app_token: str) -> None:
        """Connect with another app-level token from now on."""
        self._app_token = app_token

    async def stop(self) -> None:
        """Take no more events; those being committed are finished and acknowledged."""
        if self._client is not None:
            await self._client.stop()

    async def _open(self) -> str:
        return await self._service.open_connection(self._app_token)

    async def _identify(self) -> Identity:
        failures = 0
        while True:
            try:
                identity = await self._service.identity()
            except ChatAuthError:
                raise
            except ChatError as error:
                failures += 1
                if str(error) != self._trouble:
                    log.warning("no answer from Slack: %s; trying again", error)
                self._trouble = str(error)
                await self._clock.sleep(full_jitter_s(self._rng, failures, IDENTIFY_BASE_S, IDENTIFY_CAP_S))
            else:
                return identity

    def _note(self, status: SocketStatus) -> None:
        log.info("slack %s", status.state.replace("_", " "))
        if status.state == "connected":
            self.connected.set()
