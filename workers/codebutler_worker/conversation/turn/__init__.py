"""A turn while it runs: its beginning and end, what its agent is told, what people see, what it changed."""
