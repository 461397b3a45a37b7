"""Agents that speak the Agent Client Protocol. Loaded with the first of them: the protocol's library takes 20 MB and
most of a second."""
