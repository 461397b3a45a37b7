"""The base of all sections of the configuration, and the small ones. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Url = Annotated[str, Meta(pattern=r"^https?://")]
# An IP address or network; ipaddress validates it when it is used.
Network = Annotated[str, Meta(pattern=r"^[0-9A-Fa-f:.]{2,45}(/[0-9]{1,3})?\Z")]
OURS = "codebutler"
"""The name of the server that every agent gets (``agents/push_server.py``)."""
SERVER_NAME = rf"^(?!{OURS}\Z)[a-z0-9][a-z0-9-]{{0,39}}\Z"
ServerName = Annotated[str, Meta(pattern=SERVER_NAME)]


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the configuration."""


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
    one; without addresses nobody may, and clients beyond loopback need a token."""

    allow: tuple[Network, ...] = ()
    token: str = ""


class McpServer(Section, frozen=True):
    """A server: a program that the agent starts inside its sandbox, or a ``url`` that it reaches like any other. It
    has no environment of its own, because an agent could read it."""

    command: str = ""
    args: tuple[str, ...] = ()
    url: Annotated[str, Meta(pattern=r"^(https?://.*)?\Z")] = ""

    @property
    def fault(self) -> str:
        """Why it cannot be used, "" if it can."""
        return "" if bool(self.command) != bool(self.url) else "expected either a command or a url"


class DailyLimit(Section, frozen=True):
    """A daily budget; None = unlimited. Minutes are an agent's working time."""

    usd_per_day: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    tokens_per_day: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    turns_per_day: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    minutes_per_day: Annotated[float, Meta(ge=0, le=1e9)] | None = None


class TotalLimit(DailyLimit, frozen=True):
    """A budget of all repositories together, also for a calendar month."""

    usd_per_month: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    tokens_per_month: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    turns_per_month: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    minutes_per_month: Annotated[float, Meta(ge=0, le=1e9)] | None = None


def limits_any(limit: DailyLimit) -> bool:
    """Whether it limits anything."""
    return any(getattr(limit, name) is not None for name in limit.__struct_fields__)


class BudgetSection(Section, frozen=True):
    """What agents may use in one repository on one day of ``timezone`` (IANA; "" = the machine's own): all
    together, for one user, one thread (conversation) or one scheduled job; and ``total``, in all repositories."""

    timezone: str = ""
    total: TotalLimit = TotalLimit()
    repo: DailyLimit = DailyLimit()
    user: DailyLimit = DailyLimit()
    thread: DailyLimit = DailyLimit()
    job: DailyLimit = DailyLimit()
