"""``cluster-authority.json`` in a gateway's home: the keys that decide who belongs to the cluster.

They never leave it. The servers know the public keys, and the accounts that were signed with these keys.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from codebutler.cluster.claims import (
    Key,
    gateway_claims,
    host_claims,
    operator_claims,
    removed_claims,
    system_claims,
    user_claims,
)
from codebutler.cluster.membership import ClusterMembership
from codebutler.cluster.server import Trust
from codebutler.cluster.subjects import GATEWAY
from codebutler.config.load import explain, parse_object
from codebutler.config.paths import Home
from codebutler.domain.errors import ConfigError

NAME = "cluster-authority.json"
SYSTEM = "system"
SYSTEM_S = 300
"""How long a credential that may change accounts is valid: long enough for one command."""


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
        return cls(
            operator=operator.seed,
            system=system.seed,
            gateway=gateway.seed,
            servers=servers,
            ca=ca,
        )

    def trust(self, now_s: int) -> Trust:
        """The signed claims that the servers' configuration names."""
        operator, system, gateway = self._keys()
        accounts = {
            system.public: system_claims(operator, system, now_s),
            gateway.public: gateway_claims(operator, gateway, now_s),
        }
        return Trust(operator_claims(operator, system, now_s), system.public, accounts)

    def of_gateway(self, now_s: int) -> ClusterMembership:
        """The gateway's own credential."""
        return self._member(Key(self.gateway), GATEWAY, now_s)

    def of_system(self, now_s: int) -> ClusterMembership:
        """A credential that may change accounts for a few minutes."""
        return self._member(Key(self.system), SYSTEM, now_s, now_s + SYSTEM_S)

    def invited(self, host: str, now_s: int) -> tuple[str, str, ClusterMembership]:
        """(public key of a new account, its claims, the credential of its only user). The account's own key is
        forgotten, so nobody can make another user of it."""
        account = Key.new("account")
        operator, _, gateway = self._keys()
        claims = host_claims(operator, gateway.public, account, host, now_s)
        return account.public, claims, self._member(account, host, now_s)

    def removed(self, account: str, host: str, now_s: int) -> str:
        """The claims that end the account with that public key."""
        return removed_claims(Key(self.operator), account, host, now_s)

    def _keys(self) -> tuple[Key, Key, Key]:
        return Key(self.operator), Key(self.system), Key(self.gateway)

    def _member(self, account: Key, name: str, now_s: int, expires_s: int | None = None) -> ClusterMembership:
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
    source = home.root / NAME
    data = None
    if home.root.is_dir():
        with home.open() as directory:
            data = directory.read(NAME)
    if data is None:
        raise ConfigError(
            f"{source} does not exist: run this at the gateway, after `codebutler cluster create`"
        )
    try:
        return msgspec.convert(parse_object(data, str(source)), ClusterAuthority)
    except msgspec.ValidationError as error:
        key, what = explain(error)
        raise ConfigError(f"{source}: {key}: {what}") from None
