"""Skills: how to do something well, written down once and used by name."""
