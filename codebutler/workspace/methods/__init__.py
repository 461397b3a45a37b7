"""The Web API methods, by Slack's name."""

from __future__ import annotations

from codebutler.workspace.methods import (
    chat,
    conversations,
    files,
    lifecycle,
    pins,
    reactions,
    scheduled,
    search,
    streams,
    users,
    views,
)
from codebutler.workspace.responses import Method

METHODS: dict[str, Method] = {
    **chat.METHODS,
    **conversations.METHODS,
    **files.METHODS,
    **lifecycle.METHODS,
    **pins.METHODS,
    **reactions.METHODS,
    **scheduled.METHODS,
    **search.METHODS,
    **streams.METHODS,
    **users.METHODS,
    **views.METHODS,
}
