"""The machines that the repositories of a cluster are on, as its gateway sees them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class HostRow(Struct, frozen=True, kw_only=True):
    """A host. ``seen``: when it was last heard, None if this gateway has not heard it since it leads; ``since``: when
    its absence began, None while it is awake. ``pending``: events that it has not taken, None if unknown; ``outbox``:
    operations that its workers have not seen completed, by its last report."""

    name: str
    awake: bool
    repos: tuple[str, ...]
    since: datetime | None = None
    seen: datetime | None = None
    version: str = ""
    pending: int | None = None
    outbox: int = 0


class GatewayRow(Struct, frozen=True, kw_only=True):
    """A gateway: the one that leads, or one that stands by."""

    machine: str
    version: str
    leads: bool
    seen: datetime


class ClusterRow(Struct, frozen=True, kw_only=True):
    """A cluster as `codebutler cluster status --json` shows it; ``epoch`` is the leader's."""

    epoch: int
    gateways: tuple[GatewayRow, ...]
    hosts: tuple[HostRow, ...]
