"""What every room talks about: events, messages, commands, errors, time. Pure but for the clock."""
