"""Claude Code, over its stream protocol."""
