"""The Slack app that each user creates for themselves: what it may do, and the link that makes it.

Slack: app manifests. One app per user's workspace, never a shared one: Slack throttles reading history for
distributed apps, and every Socket Mode consumer of an app takes events away from the others.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from codebutler.domain.commands import SLASH, usage_hint

CREATE_URL = "https://api.slack.com/apps"

# Only what is called: a scope that is not there cannot be misused.
BOT_SCOPES = (
    "app_mentions:read",
    "channels:history",
    "channels:join",
    "channels:manage",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:write",
    "reactions:write",
    "users:read",
    "users:read.email",
)
NAMES_SCOPE = "users:read"
"""Without it people are shown by their IDs; all else works."""
BOT_EVENTS = (
    "app_home_opened",
    "app_mention",
    "channel_archive",
    "channel_left",
    "channel_unarchive",
    "group_archive",
    "group_left",
    "group_unarchive",
    "member_joined_channel",
    "message.channels",
    "message.groups",
    "message.im",
)


def manifest() -> dict[str, Any]:
    """The manifest, ready for JSON."""
    return {
        "_metadata": {"major_version": 1, "minor_version": 1},
        "display_information": {
            "name": "CodeButler",
            "description": "Reach the coding agents on your own machine",
            "background_color": "#1f2937",
        },
        "features": {
            "app_home": {
                "home_tab_enabled": True,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": "CodeButler", "always_online": True},
            "slash_commands": [
                {
                    "command": SLASH,
                    "description": "Ask CodeButler about its work (in a thread, write !word instead)",
                    "usage_hint": usage_hint(),
                    "should_escape": False,
                }
            ],
        },
        "oauth_config": {"scopes": {"bot": list(BOT_SCOPES)}},
        "settings": {
            "event_subscriptions": {"bot_events": list(BOT_EVENTS)},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            "token_rotation_enabled": False,
        },
    }


def creation_link() -> str:
    """Opens Slack's "create an app" page with everything filled in."""
    compact = json.dumps(manifest(), separators=(",", ":"))
    return f"{CREATE_URL}?{urlencode({'new_app': 1, 'manifest_json': compact})}"
