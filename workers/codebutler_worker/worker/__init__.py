"""The worker itself: its composition root, its receive loop, what an event becomes, and its agents."""
