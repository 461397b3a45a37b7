"""Slack: events in over Socket Mode, operations out over the Web API, within its limits, each once."""
