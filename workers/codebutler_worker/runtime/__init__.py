"""The base of conversations, commands, budgets and memory: the one place to commit, the outbox, deferred
commands, the life of a turn."""
