"""What travels on a Socket Mode connection: bytes to typed frames and acknowledgements to text. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Hello:
    """The connection is ready. ``connections`` counts every live connection of the app, ours included."""

    connections: int


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Slack will close this connection. ``reason``: warning, refresh_requested, link_disabled, …"""

    reason: str


@dataclass(frozen=True, slots=True)
class Envelope:
    """One event, click or slash command; answered with its ``envelope_id`` within about 3 s."""

    envelope_id: str
    type: str
    payload: dict[str, Any]
    accepts_response_payload: bool = False
    retry_attempt: int = 0
    retry_reason: str = ""


Frame = Hello | Disconnect | Envelope


def parse_frame(raw: bytes) -> Frame | None:
    """The frame in ``raw``; None for anything that is not one (counted and dropped by the caller)."""
    try:
        data = _decoded(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    match data.get("type"):
        case "hello":
            return Hello(_integer(data.get("num_connections")))
        case "disconnect":
            return Disconnect(str(data.get("reason") or ""))
        case str(kind):
            return _envelope(kind, data)
    return None


def _envelope(kind: str, data: dict[str, Any]) -> Envelope | None:
    envelope_id, payload = data.get("envelope_id"), data.get("payload")
    if not isinstance(envelope_id, str) or not envelope_id or not isinstance(payload, dict):
        return None
    return Envelope(
        envelope_id=envelope_id,
        type=kind,
        payload=payload,
        # Only this field decides: the same type of envelope comes with and without it.
        accepts_response_payload=data.get("accepts_response_payload") is True,
        retry_attempt=_integer(data.get("retry_attempt")),
        retry_reason=str(data.get("retry_reason") or ""),
    )


def encode_ack(envelope: Envelope, payload: dict[str, Any] | None) -> bytes:
    """The acknowledgement, JSON in UTF-8; ``payload`` travels only where Slack accepts one."""
    ack: dict[str, Any] = {"envelope_id": envelope.envelope_id}
    if payload is not None and envelope.accepts_response_payload:
        ack["payload"] = payload
    return msgspec.json.encode(ack)


def _decoded(raw: bytes) -> Any:
    """The JSON in ``raw``. Raises ValueError, RecursionError.

    Leniently, where a strict reader, which is several times as fast, refuses: one broken character must not cost
    the whole event.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(raw.decode("utf-8", "replace"))


def _integer(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
