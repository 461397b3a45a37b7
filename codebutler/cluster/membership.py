"""``cluster.json`` in the home: where the NATS servers are, and who we are to them; and the token that brings it.

It is a file of its own, so that no part of the configuration that workers get ever holds the key.
"""

from __future__ import annotations

import base64
import ipaddress
import zlib
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from codebutler.cluster.subjects import GATEWAY, HOST_NAME
from codebutler.config.load import explain, parse_object
from codebutler.config.paths import Home
from codebutler.domain.errors import ConfigError

NAME = "cluster.json"
PREFIX = "cbj1."
"""The beginning of a token, with the version of its form."""
MAX_TOKEN_BYTES = 2**16
SAFE = 3
"""Servers, and copies: what survives the loss of one. More would cost each write another disk."""


class ClusterMembership(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """``name``: the host's, or ``gateway``. ``credential``: signed claims that the servers know us by. ``seed``: the
    key that proves it and stays here. ``ca``: the certificate that signed the servers'; "" for the system's.
    ``client_certificate``, ``client_key``: files, where servers want one. ``replicas``: on how many servers everything
    is kept; 0 = on three, or on one where there are not three."""

    servers: Annotated[tuple[str, ...], Meta(min_length=1)]
    name: str = GATEWAY
    credential: str = ""
    seed: str = ""
    ca: str = ""
    client_certificate: str = ""
    client_key: str = ""
    replicas: Annotated[int, Meta(ge=0, le=5)] = 0

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection is."""
        return all(urlsplit(each).scheme == "tls" for each in self.servers)

    @property
    def copies(self) -> int:
        """On how many of these servers everything is kept."""
        return self.replicas or (SAFE if len(self.servers) >= SAFE else 1)


def is_host(home: Home) -> bool:
    """Whether this home is a host's, whose gateway says where its repositories are spoken to. Raises ConfigError."""
    return (home.root / NAME).exists() and _read(home).name != GATEWAY


def read_membership(home: Home, *, gateway: bool) -> ClusterMembership:
    """Raises ConfigError, with a line that says what to do."""
    source = home.root / NAME
    if not source.exists():
        how = "codebutler cluster create" if gateway else "codebutler host join"
        raise ConfigError(f"{source} does not exist: `{how}` creates it")
    membership = _read(home)
    if gateway != (membership.name == GATEWAY):
        raise ConfigError(
            f"{source}: name: a gateway is called {GATEWAY!r}, and a host is not (found {membership.name!r})"
        )
    if fault := _fault(membership):
        raise ConfigError(f"{source}: {fault}")
    return membership


def membership_of(file: Path) -> ClusterMembership:
    """A gateway's, from another file. Raises ConfigError."""
    try:
        membership = msgspec.convert(parse_object(file.read_bytes(), str(file)), ClusterMembership)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except msgspec.ValidationError as error:
        key, what = explain(error)
        raise ConfigError(f"{file}: {key}: {what}") from None
    if fault := "it is a host's" if membership.name != GATEWAY else _fault(membership):
        raise ConfigError(f"{file}: {fault}")
    return membership


def write_membership(home: Home, membership: ClusterMembership) -> None:
    """For the owner's eyes only. Raises CodeButlerError."""
    home.ensure()
    with home.open() as directory:
        directory.write(NAME, msgspec.json.format(msgspec.json.encode(membership), indent=2))


def token_of(membership: ClusterMembership) -> str:
    """One line that brings a membership to another machine. It is a secret."""
    packed = zlib.compress(msgspec.msgpack.encode(membership), 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def membership_in(token: str) -> ClusterMembership:
    """Raises ConfigError without quoting it."""
    text = "".join(token.split())
    if not text.startswith(PREFIX):
        raise ConfigError(f"this is not a token: paste the whole line, starting with {PREFIX} on")
    body = text.removeprefix(PREFIX)
    try:
        packed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        opened = zlib.decompressobj()
        data = opened.decompress(packed, MAX_TOKEN_BYTES)
        membership = msgspec.msgpack.decode(data, type=ClusterMembership)
        whole = opened.eof
    except (ValueError, zlib.error, msgspec.DecodeError):
        whole = False
    if not whole:
        raise ConfigError("the token is damaged: copy the whole line again")
    if membership.name == GATEWAY or (fault := _fault(membership)):
        raise ConfigError(
            f"the token cannot be used: {fault if membership.name != GATEWAY else 'not for a host'}"
        )
    return membership


def is_loopback(address: str) -> bool:
    """Of a name or a number without its port: whether it leads to this machine only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def _fault(membership: ClusterMembership) -> str:
    """Why it cannot be used; "" if it can."""
    if not HOST_NAME.fullmatch(membership.name):
        return f"name: {membership.name!r} is not a valid host name: use lower-case letters, digits and '-'"
    if not membership.seed or not membership.credential:
        how = "codebutler cluster create" if membership.name == GATEWAY else "codebutler host join"
        return f"no credential: `{how}` writes one"
    for each in membership.servers:
        where = urlsplit(each)
        if where.scheme not in ("nats", "tls") or not where.hostname:
            return f"servers: {each!r} is not an address such as tls://HOST:4222"
        if where.scheme == "nats" and not is_loopback(where.hostname):
            return f"servers: {each} would send everything over the network unencrypted: use tls://"
    if len({urlsplit(each).scheme for each in membership.servers}) > 1:
        return "servers: some are nats://, some tls://: use tls:// for all of them"
    return ""


def _read(home: Home) -> ClusterMembership:
    source = home.root / NAME
    data = None
    if home.root.is_dir():
        with home.open() as directory:
            data = directory.read(NAME)
    if data is None:
        raise ConfigError(f"there is no {source}")
    try:
        return msgspec.convert(parse_object(data, str(source)), ClusterMembership)
    except msgspec.ValidationError as error:
        key, what = explain(error)
        raise ConfigError(f"{source}: {key}: {what}") from None
