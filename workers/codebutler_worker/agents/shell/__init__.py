"""Programs in a pseudo-terminal, as agents: one command at a time, and sessions that people type into."""
