"""A Slack-compatible workspace of our own: the Web API, Socket Mode, and a page to chat in."""
