"""What the supervisor serves over HTTP."""
