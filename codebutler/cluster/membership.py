"""``cluster.json`` in the home: where the NATS servers are, and who we are to them.

It is a file of its own, so that no part of the configuration that workers get ever holds the password.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from codebutler.cluster.subjects import GATEWAY, HOST_NAME
from codebutler.config.load import explain, parse_object
from codebutler.config.paths import Home
from codebutler.domain.errors import ConfigError

NAME = "cluster.json"
EXAMPLE = '{"servers": ["nats://127.0.0.1:4222"], "name": "NAME", "password": "PASSWORD"}'


class ClusterMembership(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``name``: the host's, or ``gateway``; it is the user at the NATS servers, too. ``replicas``: on how many of them
    everything is kept; 0 = on three, or on one where there are not three."""

    servers: Annotated[tuple[str, ...], Meta(min_length=1)]
    name: str = GATEWAY
    password: str = ""
    replicas: Annotated[int, Meta(ge=0, le=5)] = 0


def is_host(home: Home) -> bool:
    """Whether this home is a host's, whose gateway says where its repositories are spoken to. Raises ConfigError."""
    return (home.root / NAME).exists() and _read(home).name != GATEWAY


def read_membership(home: Home, *, gateway: bool) -> ClusterMembership:
    """Raises ConfigError, with a line that says what to do."""
    source, membership = home.root / NAME, _read(home)
    if gateway != (membership.name == GATEWAY):
        raise ConfigError(
            f"{source}: name: a gateway is called {GATEWAY!r}, and a host is not (found {membership.name!r})"
        )
    if not HOST_NAME.fullmatch(membership.name):
        raise ConfigError(
            f"{source}: name: {membership.name!r} cannot be a host's name: use small letters, digits and '-'"
        )
    return membership


def _read(home: Home) -> ClusterMembership:
    source = home.root / NAME
    data = None
    if home.root.is_dir():
        with home.open() as directory:
            data = directory.read(NAME)
    if data is None:
        raise ConfigError(f"there is no {source}: write {EXAMPLE} into it")
    try:
        return msgspec.convert(parse_object(data, str(source)), ClusterMembership)
    except msgspec.ValidationError as error:
        key, what = explain(error)
        raise ConfigError(f"{source}: {key}: {what}") from None
