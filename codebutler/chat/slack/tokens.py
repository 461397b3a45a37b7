"""Which of Slack's tokens belongs where."""

from __future__ import annotations

from codebutler.domain.errors import ChatAuthError


def check_bot_token(token: str) -> str:
    """The token, stripped. Raises ChatAuthError when it is visibly not a bot token."""
    token = token.strip()
    if not token:
        raise ChatAuthError(
            "no bot token: set slack.botToken (it begins with xoxb-) or run `codebutler setup`"
        )
    if token.startswith("xapp-"):
        raise ChatAuthError(
            "slack.botToken holds an app-level token (xapp-): put the bot token (xoxb-) there",
            "not_allowed_token_type",
        )
    return _printable(token, "slack.botToken")


def check_app_token(token: str) -> str:
    """The token, stripped. Raises ChatAuthError when it is visibly not an app-level token."""
    token = token.strip()
    if not token:
        raise ChatAuthError(
            "no app token: set slack.appToken (it begins with xapp-) or run `codebutler setup`"
        )
    if token.startswith(("xoxb-", "xoxp-", "xoxe")):
        raise ChatAuthError(
            f"slack.appToken holds a {token[:4]} token: put the app-level token (xapp-) there",
            "not_allowed_token_type",
        )
    return _printable(token, "slack.appToken")


def _printable(token: str, key: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ChatAuthError(f"{key} holds characters that no token has: copy it again", "invalid_auth")
    return token
