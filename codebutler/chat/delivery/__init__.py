"""Sends every operation, in order, within the chat's limits, exactly once. Knows a chat only by its
ChatPort."""
