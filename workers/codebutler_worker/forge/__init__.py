"""Pushes and pull requests at the remote, with check results."""
