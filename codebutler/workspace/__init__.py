"""Our own Slack-compatible workspace: the Web API, Socket Mode, and a page to chat in."""
