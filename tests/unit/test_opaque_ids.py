"""Only a chat's adapter reads ids: elsewhere nothing makes a number, a time or a kind of them, nor an id of a time."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADAPTERS = (
    "codebutler/chat/slack/",
    "codebutler/chat/telegram/",
    "tests/memory_chat.py",
    "codebutler/workspace/",
    "codebutler/config/channels.py",
)
"""And what tells which chat a registered channel belongs to."""
ID = re.compile(r"(.*_)?(ts|msg_id|channel|channel_id|user|user_id)")
NUMBERS = {"float", "int", "Decimal", "fromtimestamp", "strptime"}
READS = {"startswith", "isdigit", "isdecimal", "isnumeric", "partition", "split"}
LONG = 40
"""Who keeps so much of an id shortens it for people."""
SORTED_BY_TS = Counter({"workers/codebutler_worker/conversation/deciding.py": 2})
"""A card is a message of ours, whose ts sorts among the ``order`` of the others: see the port."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for room in ("codebutler", "workers"):
        for path in sorted((ROOT / room).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if not name.startswith(ADAPTERS):
                yield name, ast.parse(path.read_text())


@pytest.fixture(scope="module")
def sources() -> dict[str, list[ast.AST]]:
    return {name: list(ast.walk(tree)) for name, tree in modules()}


def is_id(node: ast.AST) -> bool:
    """Whether it is named as ids are."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return ID.fullmatch(name) is not None


def called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def makes_a_number(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    by_number = any(each.arg == "key" and getattr(each.value, "id", "") in NUMBERS for each in node.keywords)
    return by_number or (called(node) in NUMBERS and any(map(is_id, node.args)))


def looks_inside(node: ast.AST) -> bool:
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=int())):
            return is_id(value)
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=ast.Constant(value=int(upper)))):
            return is_id(value) and (lower is not None or upper < LONG)
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            return is_id(value) and attr in READS
    return False


def makes_an_id(node: ast.AST) -> bool:
    """Slack's six decimals."""
    return isinstance(node, ast.FormattedValue) and "6f" in ast.unparse(node.format_spec or ast.Constant(""))


def sorts(node: ast.AST) -> bool:
    is_order = isinstance(node, ast.Compare) and any(
        isinstance(each, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for each in node.ops
    )
    return is_order and any(map(is_id, ast.iter_child_nodes(node)))


@pytest.mark.parametrize("reads", [makes_a_number, looks_inside, makes_an_id])
def test_nobody_else_reads_an_id(sources: dict[str, list[ast.AST]], reads: object) -> None:
    assert callable(reads)
    found = [
        f"{name}:{getattr(node, 'lineno', '?')}: {ast.unparse(node)}"
        for name, nodes in sources.items()
        for node in nodes
        if reads(node)
    ]
    assert found == []


def test_what_is_sorted_is_an_order(sources: dict[str, list[ast.AST]]) -> None:
    found = Counter({name: sum(map(sorts, nodes)) for name, nodes in sources.items()})
    assert +found == SORTED_BY_TS


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("float(event.ts) > float(card.ts)", makes_a_number),
        ("datetime.fromtimestamp(float(message.thread_ts))", makes_a_number),
        ("max(self._seen_ts, said.ts, key=float)", makes_a_number),
        ('channel.startswith("D")', looks_inside),
        ('event.channel[0] == "D"', looks_inside),
        ("ts[:10]", looks_inside),
        ('f"{now.timestamp():.6f}"', makes_an_id),
        ("seen.root_ts <= frame.oldest_ts", sorts),
    ],
)
def test_what_was_there_once_would_be_found(line: str, reads: object) -> None:
    assert callable(reads)
    assert any(reads(node) for node in ast.walk(ast.parse(line)))
