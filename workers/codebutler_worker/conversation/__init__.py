"""Conversations: their queue, their runs, and the questions that wait for a person."""
