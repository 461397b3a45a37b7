"""What every package uses: events, messages, commands, errors, time. Pure except for the clock."""
