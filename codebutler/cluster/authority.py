"""``cluster-authority.json`` in a gateway's home: the keys that decide who belongs to the cluster, and the claims that
they sign: accounts, and the user of each.

The keys never leave it. The servers know the public keys, and the accounts that were signed with these keys: they trust
these signatures and hold nobody's secrets. Format: version 2 of NATS JWTs, signed with Ed25519.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import nkeys
from msgspec import Meta, Struct

from codebutler.cluster.membership import (
    GATEWAY,
    HOST_SERVICES,
    ClusterMembership,
    host_services,
    orders_to,
    read_home_file,
)
from codebutler.cluster.server import MAX_PAYLOAD_BYTES, Trust
from codebutler.config.load import parse_as
from codebutler.config.paths import Home
from codebutler.domain.errors import ConfigError

Kind = Literal["operator", "account", "user"]
UNLIMITED = -1
HOST_CONNECTIONS = 16
"""One is in use; the others allow for lost connections that a server has not noticed yet."""
HOST_SUBSCRIPTIONS = 4096
REMOVED = "removed"
STREAM_ANSWERED = "$JS.API."
"""A request to these subjects has several answers."""
AUTHORITY_FILE = "cluster-authority.json"
SYSTEM = "system"
SYSTEM_S = 300
"""How long a credential that may change accounts is valid: long enough for one command."""


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


def user_claims(account: Key, user: Key, name: str, now_s: int, expires_s: int | None = None) -> str:
    """The one user of an account."""
    limits = {"type": "user", "subs": UNLIMITED, "data": UNLIMITED, "payload": UNLIMITED}
    return _signed(account, user.public, name, limits, now_s, expires_s)


def decode_claims(claims: str) -> dict[str, Any]:
    """The content of signed claims; the server checks the signature. {} for anything else."""
    try:
        body = claims.split(".")[1]
        content = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _limits() -> dict[str, object]:
    names = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
    return {**dict.fromkeys(names, UNLIMITED), "wildcards": True}


def _service(subject: str) -> dict[str, object]:
    answers = {"response_type": "Stream"} if subject.startswith(STREAM_ANSWERED) else {}
    return {"name": subject, "subject": subject, "type": "service", **answers}


def _signed(
    issuer: Key, subject: str, name: str, nats: Mapping[str, object], now_s: int, expires_s: int | None = None
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


class ClusterAuthority(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The seeds of the keys, and the servers' addresses; ``ca``: the certificate that signed the servers'
    certificates."""

    operator: str
    system: str
    gateway: str
    servers: Annotated[tuple[str, ...], Meta(min_length=1)]
    ca: str = ""

    @classmethod
    def new(cls, servers: tuple[str, ...], ca: str) -> ClusterAuthority:
        """An authority with new keys."""
        operator, system, gateway = Key.new("operator"), Key.new("account"), Key.new("account")
        return cls(operator=operator.seed, system=system.seed, gateway=gateway.seed, servers=servers, ca=ca)

    def trust(self, now_s: int) -> Trust:
        """The signed claims that the servers' configuration names."""
        operator, system, gateway = self._keys()
        changing = {"type": "account", "limits": _limits()}
        accounts = {
            system.public: _signed(operator, system.public, SYSTEM, changing, now_s),
            gateway.public: gateway_claims(operator, gateway, now_s),
        }
        own = {"type": "operator", "system_account": system.public}
        return Trust(_signed(operator, operator.public, "codebutler", own, now_s), system.public, accounts)

    def gateway_membership(self, now_s: int) -> ClusterMembership:
        """The gateway's own credential."""
        return self._new_user(Key(self.gateway), GATEWAY, now_s)

    def system_membership(self, now_s: int) -> ClusterMembership:
        """A credential that may change accounts for a few minutes."""
        return self._new_user(Key(self.system), SYSTEM, now_s, now_s + SYSTEM_S)

    def new_host_account(self, host: str, now_s: int) -> tuple[str, str, ClusterMembership]:
        """(public key of a new account, its claims, the credential of its only user). The account's own key is
        forgotten, so nobody can make another user of it."""
        account = Key.new("account")
        operator, _, gateway = self._keys()
        claims = host_claims(operator, gateway.public, account, host, now_s)
        return account.public, claims, self._new_user(account, host, now_s)

    def removal_claims(self, account: str, host: str, now_s: int) -> str:
        """The claims that replace a removed host's account, by its public key, for ever: a server that was down learns
        of them, whereas it would bring back an account that was only deleted."""
        ended = {
            "type": "account",
            "limits": _limits() | {"conn": 0, "subs": 0, "leaf": 0},
            "revocations": {"*": now_s},
            "tags": [REMOVED],
        }
        return _signed(Key(self.operator), account, host, ended, now_s)

    def _keys(self) -> tuple[Key, Key, Key]:
        return Key(self.operator), Key(self.system), Key(self.gateway)

    def _new_user(
        self, account: Key, name: str, now_s: int, expires_s: int | None = None
    ) -> ClusterMembership:
        user = Key.new("user")
        return ClusterMembership(
            servers=self.servers,
            name=name,
            credential=user_claims(account, user, name, now_s, expires_s),
            seed=user.seed,
            ca=self.ca,
        )


def read_authority(home: Home) -> ClusterAuthority:
    """The authority in this home. Raises ConfigError, with a line that says what to do."""
    source = home.root / AUTHORITY_FILE
    if (data := read_home_file(home, AUTHORITY_FILE)) is None:
        raise ConfigError(
            f"{source} does not exist: run this at the gateway, after `codebutler cluster create`"
        )
    return parse_as(data, str(source), ClusterAuthority)
