"""What a thread is told of its worktree. Pure."""

from __future__ import annotations


def own_worktree(branch: str) -> str:
    """Once, when something was changed in it."""
    return (
        f"🌿 The changes of this conversation are in a worktree of its own, on the branch `{branch}`. `!diff` and "
        "`run: …` in this thread use that worktree."
    )
