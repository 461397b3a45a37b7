"""What is made by a composition root is whole when it is made: nothing is put into it afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = (
    "codebutler/parent/bootstrap.py",
    "codebutler/parent/parts.py",
    "workers/codebutler_worker/worker/bootstrap.py",
)


def late(source: str) -> list[str]:
    """Each statement that sets an attribute of something else than ``self``."""
    return [ast.unparse(node) for node in ast.walk(ast.parse(source)) if any(map(_is_late, _targets(node)))]


def _targets(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            for target in targets:
                yield from ast.walk(target)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.NamedExpr(target=target):
            yield from ast.walk(target)
        case ast.For(target=target) | ast.AsyncFor(target=target):
            yield from ast.walk(target)
        case ast.withitem(optional_vars=ast.expr() as target):
            yield from ast.walk(target)
        case ast.Call(func=ast.Name(id="setattr" | "delattr") as called):
            yield called


def _is_late(target: ast.AST) -> bool:
    match target:
        case ast.Attribute(value=ast.Name(id="self")):
            return False
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            return True
    return isinstance(target, ast.Name) and target.id in ("setattr", "delattr")


@pytest.mark.parametrize("path", ROOTS)
def test_a_composition_root_sets_no_attribute_of_what_it_made(path: str) -> None:
    assert late((ROOT / path).read_text()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "parts.services.on_used = home.changed",
        "front = parent.front = Front()",
        "listeners.redact, listeners.called = str, str",
        "desk.private: tuple[str, ...] = ()",
        "desk.skills += ()",
        "setattr(desk, 'skills', ())",
        "with opened() as parent.front:\n    pass",
        "del desk.skills",
    ],
)
def test_late_wiring_is_found(statement: str) -> None:
    assert len(late(statement)) == 1


def test_what_an_object_sets_of_itself_is_not_late() -> None:
    assert (
        late("class HomeHandler:\n    def __init__(self):\n        self.loop = 1\n        loop = self.loop")
        == []
    )
