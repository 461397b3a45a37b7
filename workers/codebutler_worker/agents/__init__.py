"""Coding agents: the port, what all have in common, and a room for each kind."""
