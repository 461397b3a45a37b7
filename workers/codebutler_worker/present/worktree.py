"""What a thread is told of its worktree. Pure."""

from __future__ import annotations


def own_worktree(branch: str) -> str:
    """Once, when it is made."""
    return (
        f"🌿 This conversation has a working tree of its own, on the branch `{branch}`, begun at the repository's last "
        "commit. `!diff` and `run: …` in this thread look there."
    )
