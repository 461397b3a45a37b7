"""What the rehearsal agent asks a person before it does something, and what it then does. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType

from codebutler_worker.agents.backend import Answer, Approval, Question
from codebutler_worker.agents.rehearsal.intents import Append, Delete, Ignore, Intent
from codebutler_worker.agents.rehearsal.tools import ToolError

LEFT_ALONE = "You said no, so I left `{path}` alone."
NO_LANGUAGE = "You chose no language, so I wrote no `.gitignore`."
PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "Python": "__pycache__/\n*.pyc\n.venv/\ndist/",
        "Node": "node_modules/\ndist/\n*.log\n.env",
        "Go": "bin/\n*.test\n*.out",
        "Rust": "target/\n*.rs.bk",
    }
)


def request_of(intent: Intent, request_id: str) -> Approval | Question | None:
    """What has to be asked before ``intent`` is carried out; None for most."""
    match intent:
        case Delete(path):
            command = shlex.join(["rm", path])
            return Approval(request_id, "Bash", command, {"command": command})
        case Ignore():
            return Question(request_id, "Which language should the `.gitignore` be for?", tuple(PATTERNS))
    return None


def decided(intent: Intent, answer: Answer) -> Intent | str:
    """What is to be done after the answer, or what to say instead.

    Raises ToolError for an answer that makes no sense.
    """
    match intent:
        case Delete(path) if not answer.allow:
            reason = f" ({answer.text})" if answer.text else ""
            return LEFT_ALONE.format(path=path) + reason
        case Ignore():
            known = {name.lower(): text for name, text in PATTERNS.items()}
            chosen = answer.text.strip().lower() if answer.allow else ""
            if not chosen:
                return NO_LANGUAGE
            if chosen not in known:
                raise ToolError(
                    f"I do not know “{answer.text}”, only {', '.join(PATTERNS)}. I wrote no .gitignore."
                )
            return Append(".gitignore", known[chosen])
    return intent
