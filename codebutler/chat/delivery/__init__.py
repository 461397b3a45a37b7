"""The way out: every operation, in order, within the chat's limits, exactly once. Knows no chat beyond the ChatPort."""
