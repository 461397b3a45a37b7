"""The working tree: git behind the walls, snapshots, worktrees."""
