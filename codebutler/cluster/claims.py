"""NATS keys, and the claims that the cluster's operator signs: accounts, and the user of each. The servers trust these
signatures and hold nobody's secrets. Format: version 2 of NATS JWTs, signed with Ed25519."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any, Literal

import nkeys

from codebutler.cluster.server import MAX_PAYLOAD_BYTES
from codebutler.cluster.subjects import GATEWAY, HOST_SERVICES, host_services, orders_to
from codebutler.domain.errors import ConfigError

Kind = Literal["operator", "account", "user"]
UNLIMITED = -1
HOST_CONNECTIONS = 16
"""One is in use; the others allow for lost connections that a server has not noticed yet."""
HOST_SUBSCRIPTIONS = 4096
REMOVED = "removed"
STREAMED = "$JS.API."
"""A request to these subjects has several answers."""


class Key:
    """A key pair, derived from its seed."""

    def __init__(self, seed: str) -> None:
        """Raises ConfigError for an invalid seed."""
        try:
            self._pair = nkeys.from_seed(seed.encode())
        except (nkeys.NkeysError, ValueError) as error:
            raise ConfigError("its key is damaged") from error
        self.seed = seed
        self.public: str = self._pair.public_key.decode()

    @classmethod
    def new(cls, kind: Kind) -> Key:
        """A random key pair."""
        prefix = {
            "operator": nkeys.PREFIX_BYTE_OPERATOR,
            "account": nkeys.PREFIX_BYTE_ACCOUNT,
            "user": nkeys.PREFIX_BYTE_USER,
        }[kind]
        return cls(nkeys.encode_seed(secrets.token_bytes(32), prefix).decode())

    def sign(self, data: bytes) -> bytes:
        """The signature, 64 bytes."""
        signature: bytes = self._pair.sign(data)
        return signature


def operator_claims(operator: Key, system: Key, now_s: int) -> str:
    """The operator's own claims, which a server's configuration trusts."""
    return _signed(
        operator, operator.public, "codebutler", {"type": "operator", "system_account": system.public}, now_s
    )


def system_claims(operator: Key, system: Key, now_s: int) -> str:
    """The account whose user may change accounts."""
    return _signed(operator, system.public, "system", {"type": "account", "limits": _limits()}, now_s)


def gateway_claims(operator: Key, gateway: Key, now_s: int) -> str:
    """The gateway's account: it has all streams, and offers each host's subjects to that host's account."""
    storage = {
        "mem_storage": UNLIMITED,
        "disk_storage": UNLIMITED,
        "streams": UNLIMITED,
        "consumer": UNLIMITED,
    }
    exports = [_service(subject) for subject in HOST_SERVICES]
    exports.append({"name": "orders", "subject": orders_to("*"), "type": "stream"})
    account = {"type": "account", "limits": _limits() | storage, "exports": exports}
    return _signed(operator, gateway.public, GATEWAY, account, now_s)


def host_claims(operator: Key, gateway: str, host: Key, name: str, now_s: int) -> str:
    """A host's account: it imports only the host's own subjects, and has no stream and no storage. ``gateway``: the
    public key of the gateway's account."""
    imports = [
        {"name": each, "subject": each, "account": gateway, "type": "service"} for each in host_services(name)
    ]
    orders = orders_to(name)
    imports.append({"name": orders, "subject": orders, "account": gateway, "type": "stream"})
    limits = _limits() | {
        "conn": HOST_CONNECTIONS,
        "subs": HOST_SUBSCRIPTIONS,
        "payload": MAX_PAYLOAD_BYTES,
        "imports": len(imports),
        "exports": 0,
        "leaf": 0,
    }
    account = {"type": "account", "limits": limits, "imports": imports}
    return _signed(operator, host.public, name, account, now_s)


def removed_claims(operator: Key, host: str, name: str, now_s: int) -> str:
    """The claims that replace a removed host's account for ever: a server that was down learns of them, whereas it
    would bring back an account that was only deleted. ``host``: the public key."""
    account = {
        "type": "account",
        "limits": _limits() | {"conn": 0, "subs": 0, "leaf": 0},
        "revocations": {"*": now_s},
        "tags": [REMOVED],
    }
    return _signed(operator, host, name, account, now_s)


def user_claims(account: Key, user: Key, name: str, now_s: int, expires_s: int | None = None) -> str:
    """The one user of an account."""
    limits = {"type": "user", "subs": UNLIMITED, "data": UNLIMITED, "payload": UNLIMITED}
    return _signed(account, user.public, name, limits, now_s, expires_s)


def said_in(claims: str) -> dict[str, Any]:
    """The content of signed claims; the server checks the signature. {} for anything else."""
    try:
        body = claims.split(".")[1]
        said = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _limits() -> dict[str, object]:
    names = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
    return {**dict.fromkeys(names, UNLIMITED), "wildcards": True}


def _service(subject: str) -> dict[str, object]:
    answers = {"response_type": "Stream"} if subject.startswith(STREAMED) else {}
    return {"name": subject, "subject": subject, "type": "service", **answers}


def _signed(
    issuer: Key,
    subject: str,
    name: str,
    nats: Mapping[str, object],
    now_s: int,
    expires_s: int | None = None,
) -> str:
    claims = {
        "iat": now_s,
        "iss": issuer.public,
        "name": name,
        "sub": subject,
        "nats": {**nats, "version": 2},
    }
    if expires_s is not None:
        claims["exp"] = expires_s
    digest = hashlib.sha256(json.dumps(claims, sort_keys=True).encode()).digest()
    claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
    head = _base64url(b'{"typ":"JWT","alg":"ed25519-nkey"}')
    body = f"{head}.{_base64url(json.dumps(claims, separators=(',', ':')).encode())}"
    return f"{body}.{_base64url(issuer.sign(body.encode()))}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
