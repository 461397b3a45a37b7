"""WorkerHandle: one repository's worker, through all its restarts. Its faults do not affect others."""

from __future__ import annotations

import asyncio

from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.processes import is_shortage
from codebutler.platform.tasks import Tasks, first_of
from codebutler.protocol.conversations import Question
from codebutler.protocol.messages import Heartbeat, LookAtPulls, StopReason, StopTurns
from codebutler.supervisor.lifecycle import (
    Again,
    GiveUp,
    Quarantine,
    Record,
    WorkerState,
    after_death,
    describe,
    move,
)
from codebutler.supervisor.limits import Reports
from codebutler.supervisor.port import Shared, WorkerLink
from codebutler.supervisor.queues import Deliveries, Questions, Sends, T
from codebutler.supervisor.session import SessionContext, WorkerExit, WorkerSession

NOT_STARTED = 255
ROOM = "waiting until another worker sleeps: the limit of open files allows no more workers at once"


class WorkerHandle:
    """``run`` supervises the worker until ``close``; all other methods may be called at any time.

    ``deliveries``: its events, which it gets when it is up; ``wake`` starts one that sleeps or waits to be restarted.
    """

    def __init__(self, repo: RepoSettings, shared: Shared) -> None:
        self.repo = repo
        self.state: WorkerState = "stopped"
        self.restarts = 0
        self.problem = ""
        self.settled = asyncio.Event()
        self._shared = shared
        self.deliveries = Deliveries()
        self._reports = Reports(repo.name, shared.services, shared.clock)
        self._sends = Sends(shared.services, self._reports)
        self._questions = Questions()
        self._session: WorkerSession | None = None
        self._record = Record()
        self.wake = asyncio.Event()
        self._closing = False
        self._notices = Tasks(
            lambda _, error: self._reports.note("ERR", f"the notice could not be posted: {error!r}")
        )

    @property
    def pid(self) -> int | None:
        """The worker's process, None if there is none."""
        return self._session.pid if self._session else None

    @property
    def load(self) -> Heartbeat:
        """The worker's last report of its load."""
        return self._session.load if self._session else Heartbeat()

    @property
    def undelivered(self) -> int:
        """The number of events that the worker has not stored yet."""
        return len(self.deliveries)

    def start(self) -> None:
        """Start the worker now, without waiting for its backoff, and forget earlier deaths."""
        self._record = Record()
        if self._session is None:
            self.wake.set()

    async def ask(self, question: Question, kind: type[T]) -> T:
        """Wake the worker if it sleeps, and wait for its answer. Raises CodeButlerError if none comes."""
        if self.state in ("stopped", "quarantined"):
            raise CodeButlerError(f"the worker is not running: {self.problem or self.state}")
        if self.state == "sleeping":
            self.wake.set()
        return await self._questions.ask(question, kind)

    def tell_total(self) -> None:
        """Tell a running worker what the other repositories use; one that starts is told anyway."""
        if self._session:
            self._session.tell_total()

    def tell(self, news: StopTurns | LookAtPulls) -> None:
        """Tell a running worker; one that does not run looks for itself when it starts."""
        if self._session:
            self._session.tell(news)

    def reconfigure(self, repo: RepoSettings, grace_s: float) -> None:
        """Apply other settings: a running worker finishes within ``grace_s`` and is restarted."""
        self.repo = repo
        if self._session or self.state != "sleeping":
            self.restart(grace_s)

    def restart(self, grace_s: float) -> None:
        """End the worker, which may finish what runs within ``grace_s``, and start it again."""
        if self._session:
            self._session.shutdown("restart", grace_s)
        else:
            self.start()

    def close(self, grace_s: float, reason: StopReason = "shutdown") -> None:
        """End ``run``: the worker finishes within ``grace_s`` seconds (0: it is killed). May be called again."""
        self._closing = True
        self.wake.set()
        self._shared.places.withdraw(self)
        if self._session:
            self._session.shutdown(reason, grace_s)

    async def run(self) -> None:
        """Runs until ``close``. Cancelling it kills the worker."""
        try:
            await self._pause(None)
            while not self._closing:
                ended = await self._run_once()
                await self._pause(self._after(ended))
        finally:
            self.settled.set()
            await self._notices.close(0)
            await self._sends.close()
            if self.state != "stopped":
                self._move("stopped")

    async def _pause(self, delay_s: float | None) -> None:
        """Sleep until woken, or for ``delay_s`` seconds."""
        if self._closing:
            return
        if delay_s is None:
            await self.wake.wait()
        else:
            await first_of(self.wake.wait(), self._shared.clock.sleep(delay_s))
        self.wake.clear()

    async def _run_once(self) -> WorkerExit:
        self._move("starting")
        if not await self._take_place():
            return WorkerExit(None, 0.0, "shutdown")
        try:
            async with asyncio.TaskGroup() as tasks, self._shared.slots:
                try:
                    link = await self._shared.spawn(self.repo.name)
                except (OSError, EOFError) as error:
                    code = None if is_shortage(error) else NOT_STARTED
                    return WorkerExit(code, 0.0, None, f"no process could be started: {error}")
                session = self._begin(link)
                running = tasks.create_task(session.run(), name=f"worker:{self.repo.name}")
                # A start that hangs must not block the other workers' starts.
                await first_of(session.settled.wait(), self._shared.clock.sleep(self._shared.timing.slot_s))
            return running.result()
        except Exception as error:  # noqa: BLE001 - one worker's supervision must not end the others'
            return WorkerExit(NOT_STARTED, 0.0, None, f"supervision failed: {error!r}")
        finally:
            self._shared.places.give_back(self._session)
            self._session = None

    async def _take_place(self) -> bool:
        """False if ``close`` came first."""
        places = self._shared.places
        if places.full:
            self.problem = ROOM
            # A worker that waits for a place must not keep the supervisor from being ready.
            self.settled.set()
        return await places.take(self)

    def _begin(self, link: WorkerLink) -> WorkerSession:
        session = WorkerSession(
            link,
            SessionContext(
                self.repo, self.deliveries, self._sends, self._questions, self._reports, self._moved
            ),
            self._shared,
        )
        self._session = session
        if self._closing:
            session.shutdown("shutdown", 0)
        return session

    def _moved(self, state: WorkerState) -> None:
        self._move(state)
        if state == "running":
            self.settled.set()

    def _move(self, state: WorkerState) -> None:
        self.state = move(self.state, state)
        if state in ("running", "sleeping"):
            self.problem = ""
        self._reports.note("DBG", f"the worker is {state}")

    def _after(self, ended: WorkerExit) -> float | None:
        """React to the end of a process; returns the seconds until the next start, None = until woken."""
        self.settled.set()
        if self._closing or ended.stop_reason == "shutdown":
            return None
        if ended.stop_reason == "restart":
            self._move("stopped")
            self.wake.set()
            return None
        if ended.stop_reason == "sleep" and ended.exit_code == 0:
            self._move("sleeping")
            if self.deliveries or self._questions:
                self.wake.set()
            return None
        return self._after_fault(ended)

    def _after_fault(self, ended: WorkerExit) -> float | None:
        self._record, verdict = after_death(
            self._shared.policy,
            self._record,
            now_s=self._shared.clock.monotonic(),
            lived_s=ended.lived_s,
            exit_code=ended.exit_code,
            rng=self._shared.rng,
        )
        reason = f"the worker {describe(ended.exit_code)}" + (f" ({ended.why})" if ended.why else "")
        self.problem = reason
        match verdict:
            case Again(delay_s):
                self._move("backoff")
                self._reports.note("WRN", f"{reason}; it starts again in {delay_s:.1f} s")
                self.restarts += 1
                return delay_s
            case Quarantine(retry_s, news):
                self._move("quarantined")
                self._reports.note("ERR", f"{reason}; it is quarantined and tried again in {retry_s:g} s")
                self.restarts += 1
                if news:
                    self._tell(
                        f"{reason}. It failed too often and is tried again in {retry_s / 60:g} minutes."
                    )
                return retry_s
            case GiveUp():
                self._move("stopped")
                self._reports.note("ERR", f"{reason}; it stays down until its configuration is corrected")
                self._tell(f"{reason}. It stays down until its configuration is corrected.")
                return None

    def _tell(self, why: str) -> None:
        work = self._shared.services.quarantined(self.repo, why)
        self._notices.start(work, name=f"notice:{self.repo.name}")
