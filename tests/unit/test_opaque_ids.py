"""Only a chat's adapter reads references: elsewhere none becomes a number, a time or a kind, nor a time one of them.
Those of channels and people have types of their own, which a type checker keeps apart."""

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
ID = re.compile(r"(.*_)?(ref|thread|root|card|msg_id|channel|channel_id|user|user_id)")
"""As fields are named that hold one."""
NUMBERS = {"float", "int", "Decimal", "fromtimestamp", "strptime"}
READS = {"startswith", "isdigit", "isdecimal", "isnumeric", "partition", "split"}
LONG = 40
"""Who keeps so much of an id shortens it for people."""
OF_A_CHANNEL_OR_PERSON = re.compile(
    r"(self\.)?_?(channels?|channel_id|users?|user_id|only_for|from_id|decided_by|requesters|voted|allowed_users)"
)
PLAIN = {
    "codebutler/cli/": "what somebody typed",
    "codebutler/config/registering.py": "a channel's name",
    "codebutler/operations/demo.py": "the same",
    "codebutler/text/markup.py": "a mention of a channel",
    "codebutler/web/dashboard/view.py": "what is shown of a channel",
}
"""Where something that is named as a channel or a person may be a plain text."""
MAKES = {
    "codebutler/config/chats.py": "reads the settings",
    "codebutler/intake/direct.py": "reads the journal",
    "codebutler/intake/journal.py": "the same",
    "codebutler/intake/journal_file.py": "the same",
    "workers/codebutler_worker/store/rows.py": "reads rows",
    "codebutler/observe/ledger.py": "the same",
    "codebutler/web/dashboard/ledger.py": "groups what was read by name",
    "workers/codebutler_worker/present/calls.py": "the same",
    "codebutler/text/markup.py": "reads the mentions that it wrote",
    "codebutler/chat/delivery/outgoing.py": "the same",
    "codebutler/chat/people.py": "finds them in lines of the log",
    "codebutler/chat/delivery/sender.py": "a home has limits as a channel has",
    "codebutler/domain/refs.py": "nobody",
    "codebutler/domain/model.py": "the operator",
    "workers/codebutler_worker/warmup.py": "rehearses with invented ones",
}
"""Who else makes one of a text."""
SORTED_BY_REF = Counter({"workers/codebutler_worker/conversation/deciding.py": 2})
"""A card is a message of ours, whose ref sorts among the ``order`` of the others: see the port."""


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
            return is_id(value) and not ast.unparse(value).endswith("thread")  # a channel and a message
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
    assert +found == SORTED_BY_REF


def is_plain(node: ast.AST) -> bool:
    """Whether it is named as a channel or a person, and declared as a text."""
    match node:
        case ast.arg(arg=name, annotation=ast.expr() as declared):
            pass
        case ast.AnnAssign(target=target, annotation=declared):
            name = ast.unparse(target)
        case ast.FunctionDef(name=name, returns=ast.expr() as declared):
            pass
        case _:
            return False
    return (
        OF_A_CHANNEL_OR_PERSON.fullmatch(name) is not None
        and re.search(r"\bstr\b", ast.unparse(declared)) is not None
    )


def makes_a_ref(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called(node) in ("ConversationRef", "PersonRef")


def test_channels_and_people_have_types_of_their_own(sources: dict[str, list[ast.AST]]) -> None:
    found = {name for name, nodes in sources.items() if any(map(is_plain, nodes))}
    assert {name for name in found if not name.startswith(tuple(PLAIN))} == set()
    assert {exempt for exempt in PLAIN if not any(name.startswith(exempt) for name in found)} == set()


def test_only_adapters_and_readers_make_one_of_a_text(sources: dict[str, list[ast.AST]]) -> None:
    assert {name for name, nodes in sources.items() if any(map(makes_a_ref, nodes))} == set(MAKES)


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("float(event.ref) > float(card.ref)", makes_a_number),
        ("datetime.fromtimestamp(float(message.thread))", makes_a_number),
        ("max(self._seen, said.ref, key=float)", makes_a_number),
        ('channel.startswith("D")', looks_inside),
        ('event.channel[0] == "D"', looks_inside),
        ("ref[:10]", looks_inside),
        ('f"{now.timestamp():.6f}"', makes_an_id),
        ("seen.root <= frame.oldest_ref", sorts),
        ("def post(channel: str) -> None: ...", is_plain),
        ("self._users: Collection[str] = ()", is_plain),
        ("def channel_id(self) -> str: ...", is_plain),
        ("Person(PersonRef(name))", makes_a_ref),
    ],
)
def test_what_was_there_once_would_be_found(line: str, reads: object) -> None:
    assert callable(reads)
    assert any(reads(node) for node in ast.walk(ast.parse(line)))
