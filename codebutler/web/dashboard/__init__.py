"""A page that shows the state of everything and where people decide, and pages for threads and each run's changes."""
