"""One supervisor at work: its life from start to stop, the configuration in force, and what it tells of itself."""
