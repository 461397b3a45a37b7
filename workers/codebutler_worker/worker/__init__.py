"""The worker itself: its composition root, its receive loop, its inbox, and its agents."""
