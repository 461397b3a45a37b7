"""Starts queued turns as they fall due, and keeps the running ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from codebutler.config.programs import parallel_programs
from codebutler.domain.errors import StoreError
from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler.platform.tasks import Tasks, cancel, wait_for
from codebutler_worker.agents.backend import GONE
from codebutler_worker.changes.pending import due_checks
from codebutler_worker.changes.race import due_races
from codebutler_worker.conversation.end import answered_by
from codebutler_worker.conversation.marks import WORKING, show
from codebutler_worker.conversation.messages import settle_typed
from codebutler_worker.conversation.parked import ASKED, resume_due
from codebutler_worker.conversation.prepare import BegunTurn, begin
from codebutler_worker.conversation.queue import (
    STEERED,
    ShownWait,
    Slots,
    choose,
    close_turn,
    in_line,
    park_for_budget,
    tell_waiting,
)
from codebutler_worker.conversation.turn import RunningTurn
from codebutler_worker.runtime.budget import is_limited
from codebutler_worker.runtime.deferred import DeferredCommands
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import Steer, Todo, Typed, may_enter
from codebutler_worker.store.rows import DeferredRow, MessageRow
from codebutler_worker.store.unit_of_work import UnitOfWork

STORE_RETRY_S = 5.0
BeganTurns = tuple[list[BegunTurn], float | None, Mapping[str, ShownWait], tuple[int, int], list[DeferredRow]]
MAX_PROGRAMS = 20
"""Commands and sessions at once, in addition to agents' turns."""


class TurnScheduler:
    """Starts turns as they fall due. ``run`` is the loop; everything else may be called beside it."""

    def __init__(
        self, runtime: Runtime, load_changed: Callable[[], None], deferred: DeferredCommands
    ) -> None:
        self._runtime = runtime
        self._load_changed = load_changed
        self._deferred = deferred
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._paused = False
        self._running: dict[str, tuple[RunningTurn, asyncio.Task[None]]] = {}
        self._stop_at_start: dict[str, PersonRef] = {}
        self._steering: set[str] = set()
        self._typing: deque[Typed] = deque()
        self._keyboard = asyncio.Lock()
        self._tasks = Tasks(runtime.broke)
        self._shown: Mapping[str, ShownWait] = {}
        config = runtime.settings.config
        self._slots = Slots(config.agent.parallel_turns, MAX_PROGRAMS, parallel_programs(config))
        self._queued = 0
        self.parked = 0
        """How many waiting turns wait for a limit or a budget."""
        self.asking = 0
        """How many more wait until somebody says how to continue."""
        self._news = self._seen = 0

    @property
    def queued(self) -> int:
        """How many turns wait; at least one while there may be unseen news."""
        return max(self._queued, int(self._news > self._seen))

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._running or self.queued)

    @property
    def running(self) -> int:
        """How many turns are running."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many of them wait for a person."""
        return sum(turn.waits for turn, _ in self._running.values())

    def wake(self) -> None:
        """Something was queued or has ended: look again."""
        self._idle.clear()
        self._news += 1
        self._wake.set()

    def pause(self) -> None:
        """Start nothing more."""
        self._paused = True

    async def run(self, *, at_once: bool = True) -> None:
        """Start due turns for ever; unless ``at_once``, look for them only when there is news.

        A failing store delays them, it does not stop the loop.
        """
        if not at_once and not self._news:
            self._idle.set()
            await self._wake.wait()
        while True:
            self._wake.clear()
            seen = self._news
            # Runs on the store's thread: it gets copies of what the loop changes.
            begin_due = partial(
                self._begin_due,
                busy={turn.row.conversation: turn.row.agent for turn, _ in self._running.values()},
                steering=frozenset(self._steering),
                shown=self._shown,
            )
            try:
                begun, next_due_s, self._shown, on_hold, due = await self._runtime.commit(begin_due)
            except StoreError as error:
                self._runtime.log("ERR", f"runs are waiting for the store: {error}")
                await wait_for(self._runtime.clock, self._wake, STORE_RETRY_S)
                continue
            self.parked, self.asking = on_hold
            self._queued, self._seen = len(self._shown), seen
            for one in begun:
                if one.withdrawn:
                    self._deferred.withdraw(one.withdrawn)
                turn = RunningTurn(self._runtime, one, self._load_changed)
                task = asyncio.create_task(turn.run(), name=f"turn {turn.row.id}")
                self._running[turn.row.id] = (turn, task)
                task.add_done_callback(self._ended)
                # A stop may come between a turn's commit and its task.
                if (by := self._stop_at_start.get(turn.row.id)) is not None:
                    self.stop((turn.row.id,), by)
            # One for a turn that has ended is moot.
            self._stop_at_start.clear()
            if due and not self._paused:
                self._deferred.start(due)
            if not self._running and (self._paused or not self.queued):
                self._idle.set()
            self._load_changed()
            await wait_for(self._runtime.clock, self._wake, next_due_s)

    async def idle(self) -> None:
        """Wait until nothing runs and (unless paused) nothing is queued."""
        await self._idle.wait()

    def carry_out(self, todo: Todo) -> None:
        """Do what a transaction leaves to be done with running turns."""
        if todo.stop:
            self.stop(todo.stop, todo.stopped_by, forced=todo.forced)
        for steer in todo.steer:
            # The queued turn does not start until that is decided. One already under way takes later messages too.
            if steer.queued_id not in self._steering:
                self._steering.add(steer.queued_id)
                self._tasks.start(self._steer(steer), name=f"steer {steer.queued_id}")
        if todo.typed:
            self._typing.extend(todo.typed)
            self._tasks.start(self._type(), name="type")
        for answer in todo.answers:
            # One for a turn that has ended is moot.
            if found := self._running.get(answer.turn_id):
                self._tasks.start(found[0].decided(answer), name=f"tell {answer.turn_id}")

    def stop(self, turn_ids: Iterable[str], by: PersonRef = NO_PERSON, *, forced: bool = False) -> None:
        """Ask running turns to end or, if ``forced``, end them."""
        for turn_id in turn_ids:
            if found := self._running.get(turn_id):
                self._tasks.start(found[0].stop(by, forced=forced), name=f"stop {turn_id}")
            else:
                self._stop_at_start[turn_id] = by

    async def close(self) -> None:
        """Cancel running turns; their rows still say running, so that the next start finds them interrupted."""
        await cancel({task for _, task in self._running.values()})
        await self._tasks.close(0)

    def _begin_due(
        self,
        uow: UnitOfWork,
        *,
        busy: Mapping[str, str],
        steering: frozenset[str],
        shown: Mapping[str, ShownWait],
    ) -> BeganTurns:
        """Returns what has begun, when to look again, what waits and is shown to, how many are parked until some
        time, and until somebody says how to continue, and the deferred commands that are due."""
        config = self._runtime.settings.config
        agent, output = config.agent, config.output
        if self._paused:
            queued = uow.turns.find(state="queued")
            return [], None, dict.fromkeys((turn.id for turn in queued), ShownWait()), (0, 0), []
        # We have to wake parked turns: a sleeping worker would not.
        on_hold, look_again_s = uow.turns.find(state="parked"), None
        parked = [turn for turn in on_hold if turn.reason != ASKED]
        asking = len(on_hold) - len(parked)
        if parked:
            look_again_s, parked = resume_due(uow, parked)
        queued = uow.turns.find(state="queued")
        ready = [turn for turn in queued if turn.id not in steering]
        slots = self._slots
        choice = choose(ready, busy, uow.now, slots, debounce_s=agent.debounce_seconds)
        starting, elsewhere = choice.start, self._runtime.elsewhere
        if agent.on_limit not in ("wait", "ask"):
            starting = tuple(answered_by(uow, turn, config) for turn in starting)
        held = [
            turn
            for turn in starting
            if is_limited(config.budget) and park_for_budget(uow, turn, config, elsewhere)
        ]
        begun = [begin(uow, turn, config) for turn in starting if turn not in held]
        left = dict.fromkeys((turn.id for turn in queued if turn not in choice.start), ShownWait())
        tell_again_s = None
        if held:
            # Their places are free for others.
            look_again_s = 0.0
            parked = [turn for turn in uow.turns.find(state="parked") if turn.reason != ASKED]
        elif left:
            line = in_line(ready, busy, uow.now, slots, choice.start)
            places_after_s = None if output.verbosity == "quiet" else output.progress_after_seconds
            waits, tell_again_s = tell_waiting(uow, line, shown, places_after_s)
            left |= waits
        left |= dict.fromkeys((turn.id for turn in parked), ShownWait())
        due_s = [wait_s for wait_s in (choice.next_due_s, look_again_s, tell_again_s) if wait_s is not None]
        due: list[DeferredRow] = []
        if uow.deferred.find():
            working = [where for where, agent in busy.items() if agent not in slots.programs]
            due = [*due_checks(uow, config, working), *due_races(uow, working)]
        return begun, min(due_s, default=None), left, (len(parked), asking), due

    def _ended(self, task: asyncio.Task[None]) -> None:
        for turn_id, (_, running) in list(self._running.items()):
            if running is task:
                del self._running[turn_id]
        if not task.cancelled() and (error := task.exception()):
            self._runtime.broke(task.get_name(), error)
        self.wake()

    async def _type(self) -> None:
        async with self._keyboard:
            while self._typing:
                typed = self._typing.popleft()
                found = self._running.get(typed.turn_id)
                refusal = await found[0].type(typed.text) if found else GONE
                await self._runtime.commit(partial(settle_typed, typed=typed, refusal=refusal))

    async def _steer(self, steer: Steer) -> None:
        try:
            found = self._running.get(steer.running_id)
            if found is None:
                return
            while messages := await self._runtime.commit(lambda uow: _steerable(uow, steer)):
                if not await found[0].steer("\n\n".join(message.content for message in messages)):
                    return
                await self._runtime.commit(partial(_move_over, steer=steer, messages=messages))
        finally:
            self._steering.discard(steer.queued_id)
            self.wake()


def _steerable(uow: UnitOfWork, steer: Steer) -> list[MessageRow]:
    """The messages that could be put into a running turn; none if something has to be fetched first, or not all who
    wrote them may speak there: several people's messages wait as one."""
    running, messages = uow.turns.get(steer.running_id), uow.messages.find(turn_id=steer.queued_id)
    if running is None or uow.attachments.find(message_id=tuple(message.id for message in messages)):
        return []
    return messages if may_enter(uow, running, {message.from_id for message in messages}) else []


def _move_over(uow: UnitOfWork, steer: Steer, messages: Sequence[MessageRow]) -> None:
    """The running turn has read these messages of the queued one; its end marks them too. Messages that arrived or
    were edited meanwhile stay queued."""
    running, queued = uow.turns.get(steer.running_id), uow.turns.get(steer.queued_id)
    if running is None or queued is None or queued.state != "queued":
        return
    read = {(row.id, row.content) for row in messages}
    now = uow.messages.find(turn_id=queued.id)
    moved = [row.id for row in now if (row.id, row.content) in read]
    uow.messages.change({"turn_id": running.id}, turn_id=queued.id, id=tuple(moved))
    show(uow, running, WORKING)
    if len(moved) == len(now):
        close_turn(uow, queued.id, STEERED)
    for row_id, content in read:
        uow.messages.change({"acked": True}, id=row_id, content=content)
