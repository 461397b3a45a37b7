"""What the permission modes mean for the native agent; the same as for every other agent. Pure."""

from __future__ import annotations

from typing import Literal

from codebutler.config.schema import PermissionMode
from codebutler_worker.tools.port import Kind

Ruling = Literal["allow", "ask", "refuse"]

PLANNING = (
    "Nothing is changed or run before the person has agreed to a plan: look around, then call propose_plan."
)
_ASKED: dict[PermissionMode, frozenset[Kind]] = {
    "bypassPermissions": frozenset(),
    "acceptEdits": frozenset(("command", "web")),
    "ask": frozenset(("edit", "command", "web")),
    "plan": frozenset(("web",)),
}
_REFUSED: frozenset[Kind] = frozenset(("edit", "command"))


def ruling(mode: PermissionMode, kind: Kind) -> Ruling:
    """Whether a call of that kind may run, needs somebody's leave, or is out of the question."""
    if mode == "plan" and kind in _REFUSED:
        return "refuse"
    return "ask" if kind in _ASKED[mode] else "allow"


def after_plan(mode: PermissionMode) -> PermissionMode:
    """The mode once somebody has agreed to the plan: what it does is asked for one by one."""
    return "ask" if mode == "plan" else mode
