"""What conversation, commands, budgets and memory work with: the one place to commit, outbox, names, states."""
