"""Who may say something to us, and the journal that keeps it before it is acknowledged."""
