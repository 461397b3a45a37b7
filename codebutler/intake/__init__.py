"""Decides who may talk to us, and journals each event before it is acknowledged."""
