"""The tools that the built-in agent's model may call, grouped by file."""
