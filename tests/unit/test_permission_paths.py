"""Every path that decides what somebody may do asks ``may``; nothing else reads who is allowed, or the rules."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from codebutler.config.permission import ACTIONS

ROOT = Path(__file__).parents[2]
DECIDES = "codebutler/config/permission.py"
ASKED = {
    DECIDES: {"ask", "command", "press", "retract"},
    "codebutler/cluster/gateway.py": {"see"},
    "codebutler/intake/direct.py": {"see"},
    "codebutler/parent/apphome.py": {"see"},
    "codebutler/parent/moving.py": {"move"},
    "codebutler/parent/new_repos.py": {"new"},
    "codebutler/parent/services.py": {"see"},
    "codebutler/parent/commands/answers.py": {"see"},
    "codebutler/web/dashboard/actions.py": {"command"},
    "workers/codebutler_worker/commands/runs.py": {"continue"},
    "workers/codebutler_worker/commands/pressing.py": {
        "ask",
        "command",
        "commit",
        "continue",
        "merge",
        "push",
        "undo",
    },
    "workers/codebutler_worker/commands/race.py": {"ask"},
    "workers/codebutler_worker/commands/terminal.py": {"continue"},
    "workers/codebutler_worker/commands/knowledge.py": {"skill"},
    "workers/codebutler_worker/conversation/deciding.py": {"decide"},
    "workers/codebutler_worker/conversation/approvals.py": {"answer"},
    "workers/codebutler_worker/conversation/clicks.py": {"ask", "continue", "undo", "merge"},
    "workers/codebutler_worker/conversation/end.py": {"ask"},
    "workers/codebutler_worker/conversation/workdir.py": {"ask"},
    "workers/codebutler_worker/conversation/messages.py": {"ask", "type"},
    "workers/codebutler_worker/runtime/turns.py": {"loosen"},
    "workers/codebutler_worker/commands/choices.py": {"ask", "loosen"},
    "workers/codebutler_worker/commands/picking.py": {"merge"},
    "workers/codebutler_worker/worker/inbox.py": {"amend"},
    "workers/codebutler_worker/memory/keeping.py": {"remember"},
}
"""File to the actions it asks about."""
LISTS = {
    "codebutler/cli/": "shows and changes the configuration, invites people to a channel",
    "codebutler/config/": "what the configuration is",
    "codebutler/chat/platform.py": "tells the command line who is on the list",
    **dict.fromkeys(
        [f"codebutler/chat/slack/{name}.py" for name in ("app", "places", "platform", "setup")],
        "sets it up, invites people to a channel, says that nobody is allowed yet",
    ),
    **dict.fromkeys(
        [f"codebutler/chat/telegram/{name}.py" for name in ("connection", "setup")],
        "sets it up, says that nobody is allowed yet, leaves groups of strangers",
    ),
    "codebutler/intake/repos.py": "names everybody who is on a list",
    "codebutler/parent/": "looks up names; whom a message may call by name",
}
"""Who else reads ``allowedUsers``, and what for."""
OPERATORS = Counter(
    {
        DECIDES: 2,
        "codebutler/cli/chatroom/state.py": 1,  # how a line is shown
        "codebutler/parent/new_repos.py": 1,  # whom the new channel is for
        "codebutler/chat/people.py": 1,  # a name that nobody else may have
        "workers/codebutler_worker/commands/showing.py": 1,  # a terminal has no slash commands
        "workers/codebutler_worker/conversation/approvals.py": 3,  # which person's vote it is
    }
)
"""Where somebody is told from the operator."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for room in ("codebutler", "workers"):
        for path in sorted((ROOT / room).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


@pytest.fixture(scope="module")
def sources() -> dict[str, list[ast.AST]]:
    return {name: list(ast.walk(tree)) for name, tree in modules()}


def attributes(nodes: list[ast.AST]) -> set[str]:
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_nothing_else_reads_who_is_allowed(sources: dict[str, list[ast.AST]]) -> None:
    readers = {
        name for name, nodes in sources.items() if {"allowed_users", "allowed_ids"} & attributes(nodes)
    } - {DECIDES}
    assert [name for name in sorted(readers) if not name.startswith(tuple(LISTS))] == []


def test_nothing_else_reads_the_rules_and_the_patterns(sources: dict[str, list[ast.AST]]) -> None:
    readers = {name for name, nodes in sources.items() if "authorization" in attributes(nodes)}
    # What a pattern may be, how it is tried, and whose it is in a cluster.
    known = {"codebutler/config/load.py", "codebutler/config/programs.py", "codebutler/config/channels.py"}
    assert readers == {DECIDES, *known}
    importers = {
        name
        for name, nodes in sources.items()
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "codebutler.config.programs"
        if any(alias.name.startswith("objection") for alias in node.names)
    }
    assert importers == {DECIDES}


def test_every_action_is_asked_about_where_this_page_says(sources: dict[str, list[ast.AST]]) -> None:
    asked = {name: set(_actions(nodes)) for name, nodes in sources.items() if _asks(nodes)}
    assert asked == ASKED
    assert set().union(*asked.values()) == set(ACTIONS)


def test_nobody_else_is_told_from_the_operator(sources: dict[str, list[ast.AST]]) -> None:
    found = {name: sum(map(_is_about_the_operator, nodes)) for name, nodes in sources.items()}
    assert Counter({name: times for name, times in found.items() if times}) == OPERATORS


def _asks(nodes: list[ast.AST]) -> bool:
    return any(_is_may(node) for node in nodes)


def _is_may(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "may"


def _actions(nodes: list[ast.AST]) -> Iterator[str]:
    """What is asked about by name, or kept under a name that is an action's."""
    for node in nodes:
        if _is_may(node):
            assert isinstance(node, ast.Call)
            asked: ast.AST = node.args[1]
            assert isinstance(asked, ast.Constant | ast.Name)
        elif (isinstance(node, ast.AnnAssign) and node.value and _says_action(node.annotation)) or (
            isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == ["action"]
        ):
            asked = node.value or node
        else:
            continue
        for each in ast.walk(asked):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value


def _says_action(annotation: ast.AST) -> bool:
    found = {each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)}
    return "Action" in found and "Requirements" not in found


def _is_about_the_operator(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and any(
        isinstance(each, ast.Name) and each.id == "OPERATOR" for each in ast.walk(node)
    )
