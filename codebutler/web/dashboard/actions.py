"""The operator at the dashboard: any browser with the home's key, which it gets for a one-time ticket; and what they
can do there. A decision is the same click as in the chat, and uses the same path (intake, journal, audit log, worker).
Nothing else decides.

The key is stored in the home (0600), so open pages keep working after a restart. It is never part of a URL: a URL ends
up in a browser's arguments, where other users of the machine see it. A URL holds a ticket instead.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from codebutler.chat.terminal import Speaker
from codebutler.config.permission import ANY_AGENT, Person, Where, may
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import DENY_ACTION, REASON_ACTION
from codebutler.domain.model import OPERATOR, TurnNote
from codebutler.domain.refs import MessageRef
from codebutler.intake.repos import Served
from codebutler.observe.chain import AuditAct
from codebutler.platform.files import PrivateDir
from codebutler.protocol.control import Press
from codebutler.schedule.commands import ScheduleCommands
from codebutler.supervisor.workers import Workers
from codebutler.web.dashboard.changes import UNKNOWN_REPO
from codebutler.web.dashboard.runs import choices_of

ALREADY_DECIDED = "this is no longer open: somebody has already decided, or the run has ended"
WORDS_CHARS = 4000
Name = Annotated[str, Meta(max_length=200)]
Words = Annotated[str, Meta(max_length=WORDS_CHARS)]
KEY_NAME = "dashboard.key"
KEY_BYTES = 32
TICKET_BYTES = 24
TICKET_S = 3600.0
MAX_TICKETS = 100
_KEY = re.compile(rb"[\w-]{43}\n?", re.ASCII)

log = logging.getLogger("codebutler.web.dashboard")


class Keys:
    """The key of one home and the tickets of one process. ``secret``: makes that many random bytes, as text for a
    URL; ``register_secret``: is called with the key, so that it is never shown."""

    def __init__(
        self,
        home: PrivateDir,
        clock: Clock,
        secret: Callable[[int], str],
        register_secret: Callable[[set[str]], None],
    ) -> None:
        self._home = home
        self._clock = clock
        self._secret = secret
        self._register_secret = register_secret
        self._key = ""
        self._loading = asyncio.Lock()
        self._tickets: dict[str, float] = {}

    def ticket(self) -> str:
        """A new ticket, valid once and for an hour."""
        self._drop_expired()
        if len(self._tickets) >= MAX_TICKETS:
            del self._tickets[next(iter(self._tickets))]
        ticket = self._secret(TICKET_BYTES)
        self._tickets[ticket] = self._clock.monotonic() + TICKET_S
        return ticket

    async def redeem(self, ticket: str) -> str:
        """The key; "" for a used, expired or unknown ticket."""
        self._drop_expired()
        found = next((known for known in self._tickets if _is_same(known, ticket)), "")
        if not found:
            return ""
        del self._tickets[found]
        return await self._get_key()

    async def admits(self, key: str) -> bool:
        """Whether this is the key."""
        return _is_same(await self._get_key(), key)

    async def proof(self, port: int, nonce: str) -> str:
        """Proof that the listener on ``port`` has the key, in hex. A page asks for it before it sends the key:
        another program may have taken the port in the meantime and relay our answers."""
        message = f"codebutler dashboard\n{port}\n{nonce}".encode()
        return hmac.new((await self._get_key()).encode(), message, hashlib.sha256).hexdigest()

    def _drop_expired(self) -> None:
        now_s = self._clock.monotonic()
        self._tickets = {ticket: until_s for ticket, until_s in self._tickets.items() if until_s > now_s}

    async def _get_key(self) -> str:
        async with self._loading:
            if not self._key:
                self._key = await asyncio.to_thread(self._load)
                self._register_secret({self._key})
            return self._key

    def _load(self) -> str:
        """The home's key, or a new one. If the home cannot be written, the key is valid until the supervisor ends."""
        try:
            with self._home as home:
                stored = home.read(KEY_NAME) or b""
                if _KEY.fullmatch(stored):
                    return stored.decode().strip()
                created = self._secret(KEY_BYTES)
                home.write(KEY_NAME, f"{created}\n".encode())
                return created
        except (CodeButlerError, OSError) as error:
            log.warning("the dashboard's key cannot be saved, open pages will need a new link: %s", error)
            return self._secret(KEY_BYTES)


def _is_same(expected: str, actual: str) -> bool:
    return hmac.compare_digest(expected.encode(), actual.encode(errors="replace"))


class _Action(Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    repo: Name


class Decide(_Action, frozen=True, tag="decide"):
    """Press a button of a run's card; ``words`` are the reason, ``picked`` the boxes that are ticked."""

    run: Name
    card: Name
    action: Name
    value: Name
    words: Words = ""
    picked: Annotated[tuple[Name, ...], Meta(max_length=20)] = ()


class AnswerQuestion(_Action, frozen=True, tag="answer"):
    """Answer a run's question in one's own words, in its thread."""

    run: Name
    words: Annotated[str, Meta(min_length=1, max_length=WORDS_CHARS)]


class ManageWorker(_Action, frozen=True, tag="worker"):
    """Wake a worker that sleeps, start one that is down, or restart it."""

    how: Literal["start", "restart"]


class ManageJob(_Action, frozen=True, tag="job"):
    """Run, pause or resume a job, or cancel a timer by its ID."""

    name: Name
    how: Literal["run", "pause", "resume", "cancel"]


Action = Decide | AnswerQuestion | ManageWorker | ManageJob


class DashboardActions(Struct, frozen=True, kw_only=True):
    """Actions of the operator. ``find_repo`` finds a repository by its name, ``turns`` are the newest runs by
    repository, ``audit`` writes a line (raises OSError)."""

    find_repo: Callable[[str], Served | None]
    turns: Callable[[], Mapping[str, tuple[TurnNote, ...]]]
    speaker: Speaker
    workers: Workers
    schedule: ScheduleCommands
    audit: Callable[[AuditAct], None]

    async def perform(self, action: Action) -> str:
        """Do it; returns a line about it. Raises CodeButlerError with one line that says why not."""
        if (served := self.find_repo(action.repo)) is None:
            raise CodeButlerError(UNKNOWN_REPO)
        match action:
            case Decide():
                return await self._decide(served, action)
            case AnswerQuestion():
                return await self._answer(served, action)
            case ManageWorker():
                return self._manage_worker(served, action)
            case ManageJob():
                return await self._manage_job(served, action)

    async def _decide(self, served: Served, action: Decide) -> str:
        turn = self._turn(action.repo, action.run)
        pressed = (action.card, action.action, action.value)
        if not any(pressed == (each.card, each.action, each.value) for each in choices_of(turn)):
            raise CodeButlerError(ALREADY_DECIDED)
        # A form's words come with a press of the refusing button, as in a chat.
        button = DENY_ACTION if action.action == REASON_ACTION else action.action
        press = Press(ref=MessageRef(action.card), action_id=button, value=action.value, picked=action.picked)
        await self.speaker.press(served, press, turn.thread or None, action.words.strip())
        self.speaker.check_up(served)
        return "Sent. The thread shows the result."

    async def _answer(self, served: Served, action: AnswerQuestion) -> str:
        turn, speaker = self._turn(action.repo, action.run), self.speaker
        if turn.state != "waiting" or not any(asked.is_question for asked in turn.asked):
            raise CodeButlerError(ALREADY_DECIDED)
        thread, newest_card = turn.thread or None, max(asked.card for asked in turn.asked)
        ref = await speaker.post(served, action.words, thread)
        await speaker.said(served, ref, action.words, thread, newest_card)
        speaker.check_up(served)
        return "Sent. The thread shows your answer."

    def _manage_worker(self, served: Served, action: ManageWorker) -> str:
        self._check_and_audit(served, f"dashboard {action.how} worker", served.entry.name)
        if action.how == "restart":
            self.workers.restart(action.repo)
            return f"Restarting the worker of {action.repo}."
        self.workers.wake(action.repo)
        return f"Starting the worker of {action.repo}."

    async def _manage_job(self, served: Served, action: ManageJob) -> str:
        self._check_and_audit(served, f"dashboard {action.how} job", action.name)
        if action.how == "cancel":
            return await self.schedule.cancel_timer(action.name, action.repo)
        return await self.schedule.manage(action.how, f"{action.repo}/{action.name}")

    def _turn(self, repo: str, run: str) -> TurnNote:
        found = (turn for turn in self.turns().get(repo, ()) if turn.id == run)
        if (turn := next(found, None)) is None:
            raise CodeButlerError(ALREADY_DECIDED)
        return turn

    def _check_and_audit(self, served: Served, kind: str, text: str) -> None:
        """For acts that reach no worker: check the operator's permission, and write the audit log's line first."""
        where = Where(served.config, served.channel_id, ANY_AGENT)
        decision = may(Person(OPERATOR, is_owner=True), "command", where)
        outcome = "allowed" if decision.allowed else f"refused: {decision.reason}"
        try:
            self.audit(
                AuditAct(kind=kind, user=OPERATOR, channel=served.channel_id, text=text, decision=outcome)
            )
        except OSError as error:
            raise CodeButlerError(f"the audit log cannot be written: {error.strerror}") from error
        if not decision.allowed:
            raise CodeButlerError(decision.message)
