"""One running supervisor: its life from start to stop, its configuration, and its status."""
