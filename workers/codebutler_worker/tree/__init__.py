"""The working tree: git inside the sandbox, snapshots, worktrees."""
