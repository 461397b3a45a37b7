"""Telegram: events in by long polling, operations out over the Bot API, within its limits."""
