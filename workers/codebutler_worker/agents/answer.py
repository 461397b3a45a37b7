"""What of an agent's words is its answer: all it said since the last tool that worked on something. Pure.

An update of its plan or a question in between cuts nothing off, and parts that the model's service cut at its length
limit are one text again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MOST_CHARS = 2_000_000
"""An agent may be mad: what it says is not kept without bounds."""
OVERLAP_CHARS = 400
FEWEST_SAME = 8
"""So many characters at a seam are no accident: the model repeated the end of what was cut."""
STOPS_HERE = "_⚠️ The answer stops here: it reached the model's length limit. Reply `go on` for the rest._"

# Plans, questions and notes, as Claude Code 2.1, Kimi Code 2.1, OpenCode 1.18 and our own agent call their tools.
_ASIDE = frozenset(
    {
        "add_subgoal",
        "ask_user",
        "askuserquestion",
        "end_turn",
        "enterplanmode",
        "exitplanmode",
        "forget",
        "propose_plan",
        "question",
        "remember",
        "send_file",
        "taskcreate",
        "taskget",
        "tasklist",
        "taskupdate",
        "todolist",
        "todoread",
        "todowrite",
        "toolsearch",
        "update_plan",
        "update_subgoal",
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer so far. ``is_over``: a tool worked since, so what is said next begins it anew. ``is_cut``: the service
    cut off its end."""

    prose: str = ""
    is_over: bool = False
    is_cut: bool = False

    @property
    def text(self) -> str:
        """All of it, for people."""
        text = self.prose.strip()
        return f"{text}\n\n{STOPS_HERE}" if text and self.is_cut else text

    def said(self, prose: str) -> Answer:
        """With one more block of prose."""
        if not prose.strip():
            return self
        if self.is_over or not self.prose:
            joined = prose
        elif self.is_cut:
            joined = self.prose + prose[_repeated(self.prose, prose) :]
        else:
            joined = f"{self.prose.rstrip()}\n\n{prose.lstrip()}"
        return Answer(joined[:MOST_CHARS])

    def cut(self) -> Answer:
        """The service cut off what was said last."""
        return self if self.is_over else replace(self, is_cut=True)

    def called(self, tool: str) -> Answer:
        """After a call of a tool, by its name."""
        return self if tool.lower() in _ASIDE else replace(self, is_over=True, is_cut=False)


def _repeated(before: str, after: str) -> int:
    """How many characters of the end of ``before`` the beginning of ``after`` says once more."""
    most = min(len(before), len(after), OVERLAP_CHARS)
    return next((size for size in range(most, FEWEST_SAME - 1, -1) if before.endswith(after[:size])), 0)
