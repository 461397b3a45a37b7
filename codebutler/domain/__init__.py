"""What every room uses: events, messages, commands, errors, time. Pure except for the clock."""
