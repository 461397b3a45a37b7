"""What a row asks for, a call or a question, and how people see the call. Pure over rows.

The digest of its tool and input identifies a call: a decision about one says nothing about another, except
within a grant (``pattern_of``). A card shows the whole input, because the part left out could be the one that
matters. Invisible characters and those that change the reading direction are escaped. What is too long for a
message goes into a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from codebutler.domain.refs import PersonRef
from codebutler.text.markdown import split_markdown
from codebutler.text.markup import clip, plain
from codebutler.text.wording import one_line, span
from codebutler_worker.agents.backend import Approval, Question
from codebutler_worker.present.lines import code, fenced_parts, visible
from codebutler_worker.store.rows import ApprovalRow

QUESTION_TOOL = "codebutler.question"
"""Stands for the tool in the row of a question; no agent's tool has this name."""
POLL_TOOL = "codebutler.poll"
"""The same for a question that the agent does not wait for."""
QUESTIONS = frozenset({QUESTION_TOOL, POLL_TOOL})

_PATHS: Mapping[str, str] = {"Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path"}
_REMARKS = ("description", "timeout")
REASON_CHARS = 500
"""How much of a reason the card shows, in characters; the agent gets all of it."""
SUBJECT_CHARS = 200
MOST_PARTS = 4
PART_CHARS = 2400
"""Per part. A chat may refuse a message above about 11,000 characters, and its buttons with it."""
_LEADS: Mapping[str, tuple[str, ...]] = {
    "Bash": ("command",),
    "Read": ("file_path",),
    "Write": ("file_path", "content"),
    "Edit": ("file_path", "old_string", "new_string"),
}
_MARKS = {"old_string": "- ", "new_string": "+ "}


def canonical(tool: str, given: Mapping[str, Any]) -> str:
    """One spelling for one call: JSON with sorted keys."""
    return msgspec.json.encode({"tool": tool, "input": given}, order="deterministic").decode()


def digest_of(action_json: str) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(action_json.encode()).hexdigest()


def pattern_of(tool: str, given: Mapping[str, Any]) -> str:
    """What "for this session" covers: a file by its exact path, any other call by its exact input.

    For a shell command only the description and the timeout may differ.
    """
    path = given.get(_PATHS.get(tool, ""))
    if isinstance(path, str):
        return canonical(tool, {"path": path})
    if tool == "Bash":
        given = {key: value for key, value in given.items() if key not in _REMARKS}
    return canonical(tool, given)


def scope_of(tool: str, given: Mapping[str, Any]) -> str:
    """The same in words."""
    path = given.get(_PATHS.get(tool, ""))
    if isinstance(path, str):
        return f"every {tool} of {one_line(path)}"
    return "exactly this command" if tool == "Bash" else f"{tool} with exactly this input"


def is_same(row: ApprovalRow, asked: Approval | Question, workdir: str) -> bool:
    """Whether the row was written for exactly this call."""
    action_json = canonical(*action_of(asked, workdir))
    return row.action_json == action_json and row.digest == digest_of(action_json)


def action_of(asked: Approval | Question, workdir: str) -> tuple[str, dict[str, Any]]:
    """The tool and input of the request, as a row stores them."""
    if isinstance(asked, Approval):
        return asked.tool, {"input": asked.input, "cwd": workdir}
    extra = {"details": list(asked.details)} if any(asked.details) else {}
    several = {"several": True} if asked.several else {}
    return QUESTION_TOOL, {"question": asked.text, "options": list(asked.options), **extra, **several}


def given_of(row: ApprovalRow) -> dict[str, Any]:
    """What the row keeps of the question or call. Raises msgspec.DecodeError if the row is damaged."""
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
    """The details of a question's options, in order."""
    details = given_of(row).get("details")
    return tuple(str(detail) for detail in details) if isinstance(details, list) else ()


def voters(row: ApprovalRow) -> dict[PersonRef, str]:
    """Who has decided so far: names by user ID."""
    lines = [line.partition(" ") for line in row.votes.splitlines()]
    return {PersonRef(user): name or user for user, _, name in lines}


def with_vote(row: ApprovalRow, user: PersonRef, name: str) -> str:
    """The votes and one more."""
    votes = voters(row) | {user: one_line(name, 80) or user}
    return "\n".join(f"{user} {name}" for user, name in votes.items())


class ShownCall(Struct, frozen=True):
    """The request: ``texts`` (Markdown, each a part of its own) leave out ``hidden`` characters."""

    texts: tuple[str, ...]
    hidden: int = 0


def call_shown(
    tool: str, given: Mapping[str, Any], workdir: str, redact: Callable[[str], str] = str
) -> ShownCall:
    """Exactly what the agent wants to do, and where. Secrets are redacted before the cut: half a key no
    longer looks like one."""
    subject, notes, rest = _remarks(tool, given)
    blocks, hidden = fenced_parts(visible(redact(_detail(tool, rest))), PART_CHARS, MOST_PARTS)
    asked = f"🔐 Permission needed: {code(tool, 60)}"
    if subject := one_line(visible(redact(subject)), SUBJECT_CHARS):
        asked += f" · {clip(plain(subject), SUBJECT_CHARS)}"
    texts = [f"{asked}\n{blocks[0]}"]
    texts += [f"… part {at} of {len(blocks)}:\n{block}" for at, block in enumerate(blocks[1:], 2)]
    texts[-1] = "\n".join([texts[-1], *_left_out(hidden), " · ".join([f"in {code(workdir)}", *notes])])
    return ShownCall(tuple(texts), hidden)


def plan_shown(plan: str, redact: Callable[[str], str] = str) -> ShownCall:
    """The plan that needs approval."""
    parts = split_markdown(visible(redact(plan)).strip() or "(it did not say)", PART_CHARS)
    texts = parts[:MOST_PARTS]
    hidden = sum(len(part) for part in parts[MOST_PARTS:])
    texts[0] = f"📋 Here is the plan. Shall I start?\n\n{texts[0]}"
    return ShownCall((*texts, *_left_out(hidden)), hidden)


def whole_call(tool: str, given: Mapping[str, Any]) -> str:
    """The whole call, as a file beside a card that leaves some of it out."""
    return _detail(tool, given)


def allowed_by(who: str, scope: str = "") -> str:
    """Who (Markdown) allowed it, once or (``scope``) for the session."""
    return f"✅ Allowed by {who}" + (f" for this session: {plain(scope)}." if scope else ".")


def denied_by(who: str, reason: str) -> str:
    """Who (Markdown) refused it, and why."""
    return f"🚫 Denied by {who}" + (f": {plain(one_line(reason, REASON_CHARS))}" if reason else ".")


def _left_out(hidden: int) -> list[str]:
    return [f"⚠️ {hidden:,} more characters are in the file below."] if hidden else []


def _remarks(tool: str, given: Mapping[str, Any]) -> tuple[str, list[str], dict[str, Any]]:
    """What a call says about itself: its subject, notes in words, and the rest, shown as it is."""
    subject, notes, rest = "", [], dict(given)
    if tool == "Bash":
        if isinstance(given.get("description"), str):
            subject = rest.pop("description")
        if type(given.get("timeout")) in (int, float):
            notes.append(f"time limit {span(rest.pop('timeout') / 1000)}")
        if isinstance(given.get("run_in_background"), bool) and rest.pop("run_in_background"):
            notes.append("runs in the background")
    elif tool == "Edit" and isinstance(given.get("replace_all"), bool) and rest.pop("replace_all"):
        notes.append("replaces every occurrence")
    return subject, notes, rest


def _detail(tool: str, given: Mapping[str, Any]) -> str:
    """The input, most important first, nothing left out."""
    leads = [key for key in _LEADS.get(tool, ()) if isinstance(given.get(key), str)]
    lines = []
    for key in leads:
        mark = _MARKS.get(key, "")
        lines.append("\n".join(mark + line for line in given[key].split("\n")))
    lines += [f"{key}: {_value(value)}" for key, value in given.items() if key not in leads]
    return "\n".join(lines)


def _value(value: object) -> str:
    """A text as it is, with its further lines indented so that none can pass for another value. Anything else
    as JSON."""
    if isinstance(value, str):
        return value.replace("\n", "\n  ")
    return json.dumps(value, ensure_ascii=False)
