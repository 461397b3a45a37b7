"""Coding agents: the port, what all of them share, and a package for each kind."""
