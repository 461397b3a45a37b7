"""What runs by the clock: jobs from files, one-shot timers, and the commands that manage both."""
