"""Text processing, in both directions. Pure."""
