"""Before a turn: messages join, wait, are withdrawn, set aside or parked."""
