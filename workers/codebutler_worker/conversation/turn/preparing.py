"""What a turn's agent is started with: the place it works in, the files and the record, the request itself."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from codebutler.errors import CodeButlerError
from codebutler.message import said
from codebutler.model import Post
from codebutler_worker.agents.backend import TurnRequest
from codebutler_worker.agents.instructions import instructions
from codebutler_worker.conversation.turn.background import gather
from codebutler_worker.conversation.turn.beginning import Begun
from codebutler_worker.conversation.turn.luggage import Luggage
from codebutler_worker.conversation.turn.memory_file import read_memory
from codebutler_worker.conversation.turn.prompt import system_prompt
from codebutler_worker.conversation.turn.trees import TurnTrees
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, place_of
from codebutler_worker.desk.naming import WORDLESS
from codebutler_worker.memory.block import memory_block
from codebutler_worker.memory.facts import TurnNotes
from codebutler_worker.present.worktree import own_worktree
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.state_dir import STATE_DIR


class Preparing:
    """Prepares one turn: ``find_place``, then ``fetch``, then ``request``."""

    def __init__(self, desk: Desk, begun: Begun, trees: TurnTrees) -> None:
        self._desk = desk
        self._begun = begun
        self._trees = trees
        self._luggage = Luggage(desk, place_of(begun.turn), begun.attachments)
        self._record = ""

    @property
    def prompt(self) -> str:
        """What the people of this turn said, with the files that could be had."""
        return self._begun.prompt(self._luggage.rows, str(self._trees.workdir))

    @property
    def is_empty(self) -> bool:
        """Whether there were only files, of which none could be had."""
        has_words = bool(self._begun.turn.reason) or any(said.text.strip() for said in self._begun.said)
        return bool(self._begun.attachments) and not self._luggage.usable and not has_words

    async def find_place(self) -> Path:
        """Where it works. Only what may change the tree gets a worktree made; programs go where their thread is.

        Raises CodeButlerError with one line that says what to do.
        """
        turn, agents = self._begun.turn, self._desk.agents
        workdir = await agents.workdir(turn.conversation)
        if self._makes_worktree:
            task = self._desk.redactor.redact(" ".join(said.text for said in self._begun.said))
            workdir = await agents.workdir(turn.conversation, task=task)
        self._luggage.workdir = self._trees.workdir = workdir
        return workdir

    @property
    def _makes_worktree(self) -> bool:
        return self._begun.program is None and self._begun.turn.agent not in WORDLESS

    async def tidy(self) -> None:
        """Leave no worktree in which nothing was changed; tell of one that stays, once. Nothing may run in it."""
        turn, agents = self._begun.turn, self._desk.agents
        if not self._makes_worktree:
            return
        try:
            if branch := await agents.tidy(turn.conversation):
                await self._desk.commit(lambda draft: _tell(draft, turn, branch))
        except CodeButlerError as error:
            self._desk.report.log("WRN", f"after turn {turn.id}: {error}")

    async def fetch(self) -> None:
        """Get the files, and what was said without this agent. Raises StoreError."""
        await self._luggage.bring()
        self._record = await gather(self._desk, self._begun.missed, self._begun.first_ts, self._trees.workdir)

    def request(self, session_id: str | None) -> TurnRequest:
        """All that the agent is told."""
        repo, turn, workdir = Path(self._desk.settings.path), self._begun.turn, self._trees.workdir
        return TurnRequest(
            turn_id=turn.id,
            conversation=turn.conversation,
            prompt="\n\n".join(part for part in (self._record, self.prompt) if part),
            workdir=workdir,
            session_id=session_id,
            session_name=self._begun.session_name,
            system_prompt=system_prompt(
                str(workdir),
                memory_block(read_memory(repo / STATE_DIR), self._begun.facts),
                self._teaching(repo),
            ),
            cost_before_usd=self._begun.cost_before_usd,
            put_back=self._begun.put_back,
            ready=self._trees.ready,
            notes=TurnNotes(self._desk, turn),
        )

    def _teaching(self, repo: Path) -> str:
        """How to say something at once; a program is taught by its own backend."""
        if self._begun.program is not None:
            return ""
        return instructions(repo, self._desk.settings.config.envelope.prompt_file)


def _tell(draft: Draft, turn: TurnRow, branch: str) -> None:
    op_id = sha256(f"{turn.conversation} {branch}".encode()).hexdigest()
    if draft.uow.outbox.get(op_id) is None:
        draft.add(
            place_of(turn),
            Post(message=said(own_worktree(branch)), thread_ts=turn.thread_ts or None),
            op_id=op_id,
        )
