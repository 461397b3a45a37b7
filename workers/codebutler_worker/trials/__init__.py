"""What each agent can do on this machine, found out by short turns inside its real sandbox."""
