"""Conversations: what may begin, what runs, and what waits for a person."""
