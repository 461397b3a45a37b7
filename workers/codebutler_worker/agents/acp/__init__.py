"""Agents that speak the Agent Client Protocol. Loaded when the first of them is asked for: the protocol's library
takes 20 MB and most of a second.
"""
