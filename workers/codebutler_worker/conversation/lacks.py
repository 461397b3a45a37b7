"""A turn that needs what its agent cannot do here, as far as `codebutler doctor --live` has found out, is warned of it:
once in a conversation for each thing, and only while the agent's version is the one that was tried."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from uuid import NAMESPACE_URL, uuid5

from codebutler.config.programs import model_section_of
from codebutler.protocol.capabilities import AgentResult, Capability, Cell, cells_of, last_result, row_of
from codebutler_worker.conversation.prepare import BegunTurn
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import WORDLESS, agent_name
from codebutler_worker.store.rows import AttachmentRow
from codebutler_worker.store.unit_of_work import UnitOfWork, place_of

WORDS: Mapping[Capability, str] = MappingProxyType(
    {
        "image": "{agent} may not see your picture: describe what matters in it.",
        "plan": "{agent} may change files although it is in plan mode.",
        "resume": "{agent} may not know what was said before in this thread: repeat what matters.",
        "resume-after-kill": "{agent} may not know what was said before it was interrupted: repeat what matters.",
        "deny": "{agent} may run commands without asking.",
    }
)
"""What a turn may need that is worth a warning."""
FOUND = "⚠️ {words} (`codebutler doctor --live`: {text})"


def lacking(row: AgentResult | None, needed: set[Capability]) -> list[Cell]:
    """The needed capabilities that the agent was seen to lack. Pure."""
    cells = cells_of(row) if row is not None else {}
    known = (cells[name] for name in WORDS if name in needed and name in cells)
    return [cell for cell in known if cell.state in ("no", "not supported")]


async def warn_of_lacks(
    runtime: Runtime, begun: BegunTurn, files: Sequence[AttachmentRow], session_id: str | None
) -> None:
    """Post what the agent lacks of what this turn needs besides answering, unless this conversation was told before.
    Raises StoreError."""
    turn = begun.turn
    if begun.program is not None or turn.agent in WORDLESS:
        return
    needed: set[Capability] = set()
    if any(file.state == "stored" and file.mimetype.startswith("image/") for file in files):
        needed.add("image")
    section = model_section_of(runtime.settings.config, turn.agent)
    mode = begun.choice.mode or (section.permission_mode if section is not None else "")
    if mode in ("plan", "ask"):
        needed.add("plan" if mode == "plan" else "deny")
    if session_id:
        needed.add("resume-after-kill" if turn.reason == "interrupted" else "resume")
    if not needed:
        return
    result = await asyncio.to_thread(last_result, runtime.home)
    row = row_of(result, runtime.settings.name, turn.agent)
    missing = lacking(row, needed)
    if row is None or not missing or await runtime.commit(lambda uow: not _unwarned(uow, begun, missing)):
        return
    # Asking programs for their versions takes a moment, so it comes last.
    versions = {
        agent_name(runtime.settings.config, found.prefix): found.version
        for found in await runtime.agents.survey()
    }
    if versions.get(turn.agent) == row.version:
        await runtime.commit(partial(_warn, begun=begun, missing=missing))


def _unwarned(uow: UnitOfWork, begun: BegunTurn, missing: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in missing if uow.outbox.get(_op_id(begun, cell)) is None]


def _warn(uow: UnitOfWork, begun: BegunTurn, missing: Sequence[Cell]) -> None:
    for cell in _unwarned(uow, begun, missing):
        words = WORDS[cell.capability].format(agent=begun.turn.agent)
        warning = FOUND.format(words=words, text=cell.text)
        uow.post(place_of(begun.turn), warning, op_id=_op_id(begun, cell), value="notice")


def _op_id(begun: BegunTurn, cell: Cell) -> str:
    """The same ID throughout the conversation, so that the outbox knows what was posted."""
    turn = begun.turn
    return uuid5(NAMESPACE_URL, f"lacking {turn.conversation} {turn.agent} {cell.capability}").hex
