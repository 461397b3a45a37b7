"""One repository's worker. Its packages import one way: see `.importlinter`."""
