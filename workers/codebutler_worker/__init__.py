"""One repository's worker. Its rooms import one way: see `.importlinter`."""
