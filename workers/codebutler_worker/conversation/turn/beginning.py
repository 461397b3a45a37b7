"""The beginning of a turn, as one transaction: written as running, shown on its messages, what was asked gathered.

It is committed before anything is started: a crash after it is found as an interrupted turn, never as a silent one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codebutler.config.programs import program_of
from codebutler.config.schema import CommandRule, Config
from codebutler.model import Value
from codebutler_worker.conversation.asking.approvals import answers_before
from codebutler_worker.conversation.line.again import LIMIT
from codebutler_worker.conversation.line.unread import unread
from codebutler_worker.conversation.line.withdrawing import STALE
from codebutler_worker.conversation.turn.background import Missed, look_back
from codebutler_worker.conversation.turn.continuing import session_name
from codebutler_worker.conversation.turn.prompt import Said, attached, user_prompt
from codebutler_worker.conversation.turn.showing import opening
from codebutler_worker.conversation.turn.trees import to_put_back
from codebutler_worker.desk.draft import Draft, place_of
from codebutler_worker.desk.naming import WORDLESS
from codebutler_worker.desk.states import move
from codebutler_worker.present import progress
from codebutler_worker.present.notices import LATE
from codebutler_worker.present.reducer import View
from codebutler_worker.store.memory_rows import REPO_SCOPE, FactRow
from codebutler_worker.store.rows import AttachmentRow, TurnRow


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn that is committed as running, and what its agent is to be told."""

    turn: TurnRow
    said: tuple[Said, ...]
    attachments: tuple[AttachmentRow, ...]
    progress_op_id: str | None
    cost_before_usd: float
    session_name: str
    program: CommandRule | None
    missed: Missed
    put_back: tuple[str, str | None] | None = None
    facts: tuple[FactRow, ...] = ()
    answered: tuple[tuple[str, str], ...] = ()
    messages: tuple[str, ...] = ()
    """The ts of those that are its own."""

    def prompt(self, files: Sequence[AttachmentRow], repo_path: str) -> str:
        """The messages with what came of their files; agents of ours take their words alone."""
        if self.turn.agent in WORDLESS or self.program is not None:
            return "\n\n".join(said.text for said in self.said)
        # Another agent than the one that met its limit has nothing to go on with: it reads the record.
        continued = "" if self.turn.reason == LIMIT and not self.turn.session_id else self.turn.reason
        return user_prompt(attached(self.said, files, repo_path), continued or "", self.answered)

    @property
    def first_ts(self) -> str:
        """When the first of its messages was written (Slack's ts); "" where Slack shows none."""
        return min((said.id.partition(":")[2] for said in self.said), default="")


def begin(draft: Draft, turn: TurnRow, config: Config) -> Begun:
    """Write the turn as running, and gather what was asked. What is not shown now is shown if the turn lasts."""
    program = program_of(config, turn.agent)
    session = draft.uow.sessions.get(turn.conversation, turn.agent)
    place = place_of(turn)
    rows = draft.uow.messages.of_turn(turn.id)
    if program is not None and turn.reason != STALE and any(row.late and not row.acked for row in rows):
        draft.post(place, LATE)  # Its output says nothing but what it printed.
    posted = _show_at_once(draft, turn, config, program)
    session_id = session.session_id if session else None
    draft.uow.turns.update(
        turn.id,
        state=move(turn.state, "start"),
        started_at=draft.stamp,
        session_id=session_id,
        progress_op_id=posted,
    )
    before = unread(draft, turn) if program is None and turn.agent not in WORDLESS else ()
    said = [
        *(
            Said(row.content, row.late, id=row.id, unread=True)
            for each in before
            for row in draft.uow.messages.of_turn(each.id)
        ),
        *(Said(row.content, row.late, row.acked and session is not None, row.id) for row in rows),
    ]
    new = {one.id for one in said if not one.known}
    files = [file for each in (*before, turn) for file in draft.uow.attachments.of_turn(each.id)]
    begun = draft.uow.turns.get(turn.id)
    return Begun(
        begun or turn,
        tuple(said),
        tuple(file for file in files if file.message_id in new),
        posted,
        session.total_cost_usd if session else 0.0,
        "" if session else session_name(draft, turn),
        program,
        look_back(draft, turn, session_id, config, unread=len(before)),
        to_put_back(draft, turn),
        answered=answers_before(draft, turn) if turn.reason in ("interrupted", "stopped") else (),
        messages=tuple(row.platform_msg_id for row in rows if row.platform_msg_id),
        facts=(*draft.uow.facts.of(REPO_SCOPE), *draft.uow.facts.of(turn.user_id)),
    )


def _show_at_once(draft: Draft, turn: TurnRow, config: Config, program: CommandRule | None) -> str | None:
    """That a session has begun, and everything where nothing is to wait (``output.progressAfterSeconds``). The output
    of a program is shown however quiet it is. Returns the message that shows it, None if none does yet."""
    posted, place, output = turn.progress_op_id, place_of(turn), config.output
    session = program is not None and program.mode == "interactive"
    if output.progress_after_seconds and not session:
        return posted
    showing = opening(program, turn.id) if program else progress.running(View(), 0, turn.id, turn.agent)
    value: Value = "notice" if program else "progress"
    if posted is not None:
        draft.edit(place, posted, showing, value=value)
    elif output.verbosity != "quiet" or program:
        posted = draft.post(place, showing, value=value)
    return posted
