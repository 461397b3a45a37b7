"""Code, people and untrusted text as Markdown. Pure.

What is said about worktrees: merged, discarded, listed. Pure.
"""

from __future__ import annotations

import html
import unicodedata

from codebutler.domain.message import DISCARD_ACTION, Button, Message, said
from codebutler.domain.refs import PersonRef
from codebutler.text import markup
from codebutler.text.markup import fence, plain
from codebutler.text.wording import LINE_LIMIT, count, one_line
from codebutler_worker.tree.merging import Merged
from codebutler_worker.tree.worktrees import KEPT_DAYS, WorktreeState

_CONTROLS = frozenset(map(chr, (*range(32), 127))) - {"\n", "\t"}
# Letters, marks and symbols by category. Not U+FE0E and U+FE0F, which choose between a sign and an emoji.
_FILLERS = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0,
              *range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0)))
)  # fmt: skip


def code(text: str, limit: int = LINE_LIMIT) -> str:
    """Untrusted text as one line of inline code."""
    return markup.code(one_line(text, limit))


def person(user: PersonRef, name: str = "") -> str:
    """Somebody's name; if only the ID is known, the chat shows its own."""
    return plain(name) if name and name != user else markup.person(user)


def visible(text: str) -> str:
    """Escapes control, format and separator characters and fillers, which are invisible or misleading."""
    return "".join(
        f"\\u{ord(each):04x}" if (not each.isascii() and _misleads(each)) or each in _CONTROLS else each
        for each in text
    )


def _misleads(sign: str) -> bool:
    """Whether the character is invisible, an unusual space, or in private use."""
    kind = unicodedata.category(sign)
    return kind in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs") or sign in _FILLERS


FENCE_CHARS = 3500


def fenced(text: str, limit: int = FENCE_CHARS) -> tuple[str, int]:
    """Untrusted text as a code block of at most about ``limit`` characters, and how many characters it leaves
    out."""
    (block,), hidden = fenced_parts(text, limit, most=1)
    return block, hidden


def fenced_parts(text: str, limit: int, most: int) -> tuple[list[str], int]:
    """The same as at most ``most`` code blocks, and how many characters they leave out together. A block ends
    at the end of a line or word if possible; an ellipsis marks one that is cut within a line, and the last
    one if more is left out."""
    blocks: list[str] = []
    rest = text
    while (rest or not blocks) and len(blocks) < most:
        shown = _fitting(rest, limit)
        cut = len(shown) < len(rest) and not (shown.endswith("\n") and len(blocks) + 1 < most)
        rest = rest[len(shown) :]
        # For the redactor, too: the text before it may be half a key.
        blocks.append(fence(f"{shown.strip(chr(10))}{'…' if cut else ''}"))
    return blocks, len(rest)


def _fitting(text: str, limit: int) -> str:
    """The start of the text that fits a code block."""
    shown = text[:limit]
    while (size := cost(shown)) > limit:
        shown = shown[: len(shown) * limit // size]
    if len(shown) < len(text):
        for end in ("\n", " "):
            if (at := shown.rfind(end) + 1) > len(shown) // 2:
                return shown[:at]
    return shown


def cost(code: str) -> int:
    """Its length in a chat that escapes code as HTML does."""
    return len(html.escape(fence(code.strip("\n")), quote=False)) - len(fence(""))


MOST_FILES = 5
SIGN_AGAIN = "To sign again: `git rebase -f -S` onto the commit before them."
SHARED = (
    "All threads share the repository's own working tree here, so there are no worktrees. Set `agent.isolation` to "
    "`worktree` in the configuration to give each thread its own branch; here, `!diff` shows the changes "
    "and `!undo` undoes the last run's."
)


def merged_text(merged: Merged) -> str:
    """What is new in the branch it was merged into."""
    if not merged.stat:
        return f"{merge_line(merged)}."
    lost = ""
    if merged.unsigned:
        are = "is" if merged.unsigned == 1 else "are"
        lost = f"\n⚠️ {count(merged.unsigned, 'commit')} {are} no longer signed: rebasing changed them. {SIGN_AGAIN}"
    return f"✅ {merge_line(merged)}.{lost}\nContinue in this thread, or `!discard` its worktree."


def merge_line(merged: Merged) -> str:
    """The same in one sentence, without its full stop."""
    if not merged.stat:
        return f"{code(merged.into)} already has everything that is on {code(merged.branch)}"
    return f"Merged {code(merged.branch)} into {code(merged.into)}: {merged.stat}"


def conflict_text(merged: Merged, *, passed_on: bool, again: str = "say `!merge` again") -> str:
    """Why it was not merged, and what happens next."""
    then = (
        f"The agent is resolving them; {again} when it is done."
        if passed_on
        else f"Ask the agent to resolve them, then {again}."
    )
    return (
        f"⚠️ Not merged: {code(merged.branch)} conflicts with {code(merged.into)} in {_paths(merged.conflicts)}. "
        f"Nothing was changed. {then}"
    )


def conflict_task(merged: Merged) -> str:
    """The task for its agent."""
    paths = "\n".join(f"- {path}" for path in merged.conflicts)
    return (
        f"Your branch {merged.branch} could not be merged into {merged.into}, because both changed these files:\n"
        f"{paths}\n\n"
        f"Nothing was merged. Merge {merged.into} into your branch here (git merge {merged.into}), resolve the "
        "conflicts so that the intention of both sides is kept, run the checks if there are any, and commit. "
        f"Do not change {merged.into} itself."
    )


def whether_to_discard(value: str, state: WorktreeState) -> Message:
    """What would be lost, and the button that discards it."""
    text = (
        f"🗑️ Discard the worktree of this thread ({code(state.branch or state.path.name)})?\n"
        f"Not in the repository's branch: {'; '.join(_unsaved(state))}.\n"
        f"A copy is kept in git for {KEPT_DAYS} days, without ignored files and files above 20 MB."
    )
    return said(text, Button("Discard", DISCARD_ACTION, value, "danger"))


def discarded_text(state: WorktreeState, ref: str) -> str:
    """Where the copy is kept."""
    return (
        f"🗑️ Removed the worktree {code(state.branch or state.path.name)}. For {KEPT_DAYS} days "
        f"`git branch NAME {ref}` restores its files and commits."
    )


def listed(state: WorktreeState, thread: str, *, runs: bool, room: str) -> str:
    """One worktree on a line; ``thread`` is Markdown, ``room`` its size."""
    how = "; ".join(_unsaved(state)) or "merged"
    sign = "👀" if runs else "✅" if state.is_saved else "🌿"
    parts = [f"{sign} {code(state.branch or state.path.name)}", thread, how, room]
    return " · ".join(part for part in parts if part)


def _unsaved(state: WorktreeState) -> list[str]:
    parts = []
    if state.changed:
        parts.append(f"{count(len(state.changed), 'file')} not committed ({_paths(state.changed)})")
    if state.unmerged:
        parts.append(f"{count(state.unmerged, 'commit')} not merged")
    if state.unfinished:
        parts.append("an unfinished merge or rebase")
    if state.holds_more:
        parts.append("files sent to or made by the agent, or submodules")
    return parts


def _paths(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - MOST_FILES} more" if len(paths) > MOST_FILES else ""
    return ", ".join(code(path, 60) for path in paths[:MOST_FILES]) + more
