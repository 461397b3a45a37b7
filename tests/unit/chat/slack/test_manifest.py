"""The manifest asks for what the product uses, within Slack's limits."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

from codebutler.chat.slack.app import creation_link, manifest


def test_uses_socket_mode_and_needs_no_public_url() -> None:
    made = manifest()
    assert made["settings"]["socket_mode_enabled"] is True
    assert "request_url" not in json.dumps(made)


def test_stays_within_the_limits_of_slack() -> None:
    display = manifest()["display_information"]
    assert len(display["name"]) <= 35
    assert len(display["description"]) <= 140


def test_every_message_event_has_the_scope_to_read_it() -> None:
    made = manifest()
    scopes = set(made["oauth_config"]["scopes"]["bot"])
    events = made["settings"]["event_subscriptions"]["bot_events"]
    needed = {f"{event.removeprefix('message.')}:history" for event in events if event.startswith("message.")}
    assert needed
    assert needed <= scopes


def test_link_carries_the_whole_manifest() -> None:
    query = parse_qs(urlsplit(creation_link()).query)
    assert query["new_app"] == ["1"]
    assert json.loads(query["manifest_json"][0]) == manifest()
    assert len(creation_link()) < 4_000
