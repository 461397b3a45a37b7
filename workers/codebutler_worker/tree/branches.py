"""Names of conversations' branches. Pure."""

from __future__ import annotations

import hashlib
import re

from codebutler.config.registry import unaccented

BRANCHES = "codebutler/"
SLUG_CHARS = 32
DIGITS = (4, 8, 16)
"""Characters of the conversation's digest: more if a name is taken."""
_FILLERS = re.compile(
    r"an?|and|are|at|be|can|could|do|for|from|hello|hey|hi|i|in|is|it|let|lets|like|me|my|need|of|on|or|our|please|"
    r"should|so|some|that|the|then|there|these|this|to|us|want|was|we|will|with|would|you|your"
)


def names_of(conversation: str, task: str) -> tuple[str, ...]:
    """Names for its branch, shortest first: ``codebutler/fix-login-bug-3f2a``. Safe for git and any file system."""
    digest = hashlib.sha256(conversation.encode()).hexdigest()
    return tuple(f"{BRANCHES}{slug(task)}-{digest[:digits]}" for digits in DIGITS)


def slug(task: str) -> str:
    """The first meaningful words of the task: lower-case ASCII letters and digits, joined by ``-``."""
    words = re.findall(r"[a-z0-9]+", unaccented(task[:500]).lower().replace("'", ""))
    shown = ""
    for word in [word for word in words if not _FILLERS.fullmatch(word)] or words:
        longer = f"{shown}-{word}" if shown else word[:SLUG_CHARS]
        if len(longer) > SLUG_CHARS:
            break
        shown = longer
    return shown or "task"
