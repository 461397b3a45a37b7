"""What is done with text, in both directions. Pure."""
