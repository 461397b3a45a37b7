"""What people see of a turn: events, cards and answers as messages. Pure."""
