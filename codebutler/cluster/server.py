"""The configuration of the NATS servers of a cluster: whom they trust, and where they listen. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MINIMUM = (2, 12, 3)
"""Older ones cannot sync each message, or lose what they have synced."""
MAX_PAYLOAD_BYTES = 8 * 2**20
SYNC = "5s"
"""How often servers compare whom they know: one that was down meanwhile then learns who was removed."""
PORT = 4222
ROUTES_APART = 2000
"""Between a server's port for clients and the one for the other servers."""
ROUTE_PINGS = {"ping_interval": "5s", "ping_max": 2}
"""How servers find out that they no longer hear each other; else it takes them minutes."""
CERTIFICATE, CERTIFICATE_KEY, CA, CLIENT_CA = "server.pem", "server-key.pem", "ca.pem", "client-ca.pem"
"""Files beside the configuration."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What servers need to know of everybody: signed claims. ``accounts`` by public key; a host's come later, and
    need no restart."""

    operator: str
    system: str
    accounts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NatsNode:
    """One of the servers: where it is for everybody else."""

    host: str
    port: int = PORT

    def url(self, *, encrypted: bool) -> str:
        """For clients."""
        return f"{'tls' if encrypted else 'nats'}://{self.host}:{self.port}"


def objection(version: tuple[int, int, int], max_payload_bytes: int) -> str:
    """Why a server of that version and configuration cannot be used; "" if it can."""
    if version < MINIMUM:
        return f"nats-server {_dotted(version)} is too old: use {_dotted(MINIMUM)} or newer"
    if max_payload_bytes < MAX_PAYLOAD_BYTES:
        return f"the NATS server's max_payload is {max_payload_bytes}: set it to {MAX_PAYLOAD_BYTES}"
    return ""


def server_config(
    trust: Trust, *, listen: str, directory: str, encrypted: bool = False, client_ca: bool = False
) -> dict[str, Any]:
    """For ``nats-server -c``, as JSON, which is one of its forms. Paths are relative to where it is started."""
    tls: dict[str, object] = {"tls": _tls(client_ca=client_ca)} if encrypted else {}
    return {
        "listen": listen,
        "max_payload": MAX_PAYLOAD_BYTES,
        "jetstream": {"store_dir": directory, "sync_interval": "always"},
        "operator": trust.operator,
        "system_account": trust.system,
        "resolver": {"type": "full", "dir": f"{directory}/accounts", "allow_delete": False, "interval": SYNC},
        "resolver_preload": dict(trust.accounts),
        **tls,
    }


def routes_config(node: NatsNode, nodes: tuple[NatsNode, ...], *, encrypted: bool) -> dict[str, object]:
    """What one of several servers needs, too: its name, and the others."""
    others = [f"nats-route://{each.host}:{each.port + ROUTES_APART}" for each in nodes if each != node]
    files = {"cert_file": CERTIFICATE, "key_file": CERTIFICATE_KEY, "ca_file": CA}
    tls: dict[str, object] = {"tls": {**files, "verify": True}} if encrypted else {}
    listen = f"{'0.0.0.0' if encrypted else node.host}:{node.port + ROUTES_APART}"  # noqa: S104 - only with TLS
    cluster = {
        "name": "codebutler",
        "listen": listen,
        "routes": others,
        "no_advertise": True,
        **ROUTE_PINGS,
        **tls,
    }
    return {"server_name": f"{node.host}-{node.port}", "cluster": cluster}


def _tls(*, client_ca: bool) -> dict[str, object]:
    files: dict[str, object] = {"cert_file": CERTIFICATE, "key_file": CERTIFICATE_KEY, "min_version": "1.2"}
    verified = {"ca_file": CLIENT_CA, "verify": True} if client_ca else {}
    return {**files, **verified, "handshake_first": True}


def written(config: Mapping[str, object]) -> bytes:
    """As a file."""
    return json.dumps(config, indent=2).encode() + b"\n"


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))
