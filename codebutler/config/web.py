"""The configuration sections for what the supervisor serves over HTTP."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler.config.section import Section

# An IP address or network; ipaddress validates it when it is used.
Network = Annotated[str, Meta(pattern=r"^[0-9A-Fa-f:.]{2,45}(/[0-9]{1,3})?\Z")]


class DashboardSection(Section, frozen=True):
    """Where the supervisor serves HTTP."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 7788


class TracingSection(Section, frozen=True):
    """The collector that gets a trace of each run (OTLP over HTTP), "" = none."""

    endpoint: Annotated[str, Meta(pattern=r"^(https?://\S+)?\Z")] = ""


class MetricsSection(Section, frozen=True):
    """Who may read ``/metrics`` on the dashboard's port: these addresses and networks, with the ``token`` if there is
    one; nobody without an address and, beyond loopback, a token."""

    allow: tuple[Network, ...] = ()
    token: str = ""
