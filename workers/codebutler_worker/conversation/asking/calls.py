"""What a row says was asked: one call, named by the digest of its tool and input, or one question. Pure over rows.

What was decided about one call says nothing about another, except within a grant (``pattern_of``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from codebutler_worker.agents.backend import Approval, Question
from codebutler_worker.present.lines import one_line
from codebutler_worker.store.rows import ApprovalRow

QUESTION_TOOL = "codebutler.question"
"""Stands for the tool in the row of a question; no agent's tool has this name."""
POLL_TOOL = "codebutler.poll"
"""The same for a question whose answer the agent does not wait for."""
QUESTIONS = frozenset({QUESTION_TOOL, POLL_TOOL})

_PATHS: Mapping[str, str] = {"Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path"}
_REMARKS = ("description", "timeout")


def canonical(tool: str, given: Mapping[str, Any]) -> str:
    """One spelling for one call: JSON with sorted keys."""
    return msgspec.json.encode({"tool": tool, "input": given}, order="deterministic").decode()


def digest_of(action_json: str) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(action_json.encode()).hexdigest()


def pattern_of(tool: str, given: Mapping[str, Any]) -> str:
    """What "for this session" covers: a file by its exact path, any other call by its exact input.

    Of a shell command only the remark for people and the time limit may differ.
    """
    path = given.get(_PATHS.get(tool, ""))
    if isinstance(path, str):
        return canonical(tool, {"path": path})
    if tool == "Bash":
        given = {key: value for key, value in given.items() if key not in _REMARKS}
    return canonical(tool, given)


def scope_of(tool: str, given: Mapping[str, Any]) -> str:
    """The same for people."""
    path = given.get(_PATHS.get(tool, ""))
    if isinstance(path, str):
        return f"every {tool} of {one_line(path)}"
    return "exactly this command" if tool == "Bash" else f"{tool} with exactly this input"


def is_same(row: ApprovalRow, asked: Approval | Question, workdir: str) -> bool:
    """Whether the row was written for exactly this."""
    action_json = canonical(*action_of(asked, workdir))
    return row.action_json == action_json and row.digest == digest_of(action_json)


def action_of(asked: Approval | Question, workdir: str) -> tuple[str, dict[str, Any]]:
    """The tool and input that a row keeps of what was asked."""
    if isinstance(asked, Approval):
        return asked.tool, {"input": asked.input, "cwd": workdir}
    extra = {"details": list(asked.details)} if any(asked.details) else {}
    several = {"several": True} if asked.several else {}
    return QUESTION_TOOL, {"question": asked.text, "options": list(asked.options), **extra, **several}


def given_of(row: ApprovalRow) -> dict[str, Any]:
    """What the row keeps of the question or call. Raises msgspec.DecodeError for a damaged row."""
    action = msgspec.json.decode(row.action_json, type=dict[str, Any])
    given = action.get("input")
    return given if isinstance(given, dict) else {}


def called_with(row: ApprovalRow) -> dict[str, Any]:
    """The input of the call that the row is about."""
    called = given_of(row).get("input")
    return called if isinstance(called, dict) else {}


def options_of(row: ApprovalRow) -> list[str]:
    """The options of a question."""
    options = given_of(row).get("options")
    return [str(option) for option in options] if isinstance(options, list) else []


def details_of(row: ApprovalRow) -> tuple[str, ...]:
    """What explains the options of a question, in their order."""
    details = given_of(row).get("details")
    return tuple(str(detail) for detail in details) if isinstance(details, list) else ()


def voters(row: ApprovalRow) -> dict[str, str]:
    """Who has decided so far: names by user ID."""
    lines = [line.partition(" ") for line in row.votes.splitlines()]
    return {user: name or user for user, _, name in lines}


def with_vote(row: ApprovalRow, user: str, name: str) -> str:
    """The votes with one more in them."""
    votes = voters(row) | {user: one_line(name, 80) or user}
    return "\n".join(f"{user} {name}" for user, name in votes.items())
