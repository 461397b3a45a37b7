"""What conversation, commands, budgets and memory work with: the one place to commit, the outbox, deferred commands,
the life of a turn."""
