"""The configuration of a NATS server for a cluster: who may do what there. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from codebutler.cluster.subjects import GATEWAY, host_permissions

MINIMUM = (2, 12, 3)
"""Older ones cannot sync each message, or lose what they have synced."""
MAX_PAYLOAD_BYTES = 8 * 2**20


def objection(version: tuple[int, int, int], max_payload_bytes: int) -> str:
    """Why a server of that version and configuration cannot be used; "" if it can."""
    if version < MINIMUM:
        return f"nats-server {_dotted(version)} is too old: use {_dotted(MINIMUM)} or newer"
    if max_payload_bytes < MAX_PAYLOAD_BYTES:
        return f"the NATS server's max_payload is {max_payload_bytes}: set it to {MAX_PAYLOAD_BYTES}"
    return ""


def server_config(passwords: Mapping[str, str], *, listen: str, directory: str) -> str:
    """``passwords`` by name: the gateway's and each host's. A file for ``nats-server -c``; JSON is one of its forms."""
    users = [
        {"user": name, "password": password, **_permissions(name)} for name, password in passwords.items()
    ]
    return json.dumps(
        {
            "listen": listen,
            "max_payload": MAX_PAYLOAD_BYTES,
            "jetstream": {"store_dir": directory, "sync_interval": "always"},
            "authorization": {"users": users},
        },
        indent=2,
    )


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


def _permissions(name: str) -> dict[str, object]:
    if name == GATEWAY:
        return {}
    publish, subscribe = host_permissions(name)
    return {"permissions": {"publish": list(publish), "subscribe": list(subscribe), "allow_responses": True}}
