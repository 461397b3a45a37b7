"""What everything a person asks for works with: the one place to commit, outbox, names, states."""
