"""The network policy of agents and commands: what the configuration asks for, within the current sandbox. It opens the
access of each program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.schema import SandboxSection
from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.egress.access import IMPATIENT, SHORT, NetworkAccess, ProxiedAccess
from codebutler_worker.egress.hosts import Dialer, HostPort, Hosts
from codebutler_worker.egress.proxy import Proxy, Rules
from codebutler_worker.egress.service import ModelService
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy, trial_directories
from codebutler_worker.sandbox.prelude import GIT_NOTICE
from codebutler_worker.sandbox.process import run_to_end

WITH_PROXY = ("bwrap", "docker")
"""The sandboxes that support the proxy."""
CONTAINER = "docker"
NO_SANDBOX = "none"
NO_PROXY_HERE = (
    '{key} "hosts" needs bubblewrap or docker: set sandbox.mode to "bwrap" or "docker", or {key} to "open"'
)
TRIAL_S = 20.0
PROGRAM = ("/bin/sh", "-c", "exit 42")
Kind = Literal["none", "hosts", "open"]
ONLY_HOSTS = (
    "The network of this sandbox: besides your model's service it reaches {hosts}. Other hosts answer 403, by the "
    "decision of this machine's owner: do not try to get around it. If a task needs one (say, to install packages), "
    'tell the person that the owner can add it to `sandbox.hosts`, or set `sandbox.network` to "open", in the '
    "configuration."
)
NO_NETWORK = (
    "This sandbox has no network, by the decision of this machine's owner: do not try to get around it. If a task "
    "needs one (say, to install packages), tell the person that the owner can name hosts in `sandbox.hosts` in the "
    "configuration."
)


class NetworkPolicy(Struct, frozen=True):
    """Opens network access as configured. ``hosts`` come from the configuration; ``sandboxed``: there is a sandbox, so
    a key can be kept outside it; ``logged``: the hosts whose refusal is in the log."""

    kind: Kind = "open"
    hosts: tuple[str, ...] = ()
    sandboxed: bool = False
    dialer: Dialer = msgspec.field(default_factory=Dialer)
    logged: set[HostPort] = msgspec.field(default_factory=set)

    async def open(
        self, workdir: Path, service: ModelService | None = None, needed: tuple[str, ...] = ()
    ) -> NetworkAccess:
        """Network access for one program in ``workdir``: to ``service`` and, without a service, to the ``needed``
        hosts. ``hosts``: through the proxy only; ``open``: the full network, and the proxy only if a key must be added.

        Raises SandboxUnavailableError.
        """
        if self.kind == "none":
            return NetworkAccess("none", env=IMPATIENT)
        if not self.sandboxed:
            return NetworkAccess()
        # With an open network everybody on this machine can reach the proxy, so it serves the model's service only.
        listed = (*self.hosts, *needed) if self.kind == "hosts" else ()
        proxy = Proxy(Rules(Hosts(listed), service), self.dialer, logged=self.logged)
        access = ProxiedAccess(proxy=proxy, refused=proxy.refused, gauge=proxy.gauge)
        try:
            if self.kind == "hosts":
                access.behind_socket(workdir)
            elif service is not None and service.keys:
                await access.here()
        except OSError as error:
            raise SandboxUnavailableError(
                f"cannot open the sandbox's proxy ({error.strerror}): check {error.filename or SHORT}"
            ) from error
        if access.port and service is not None:
            proxy.prepare()  # while the program starts
        return access

    def notice(self) -> str:
        """What to tell an agent about its network; "" if nothing."""
        network = NO_NETWORK if self.kind == "none" else ""
        if self.kind == "hosts":
            network = ONLY_HOSTS.format(hosts=", ".join(self.hosts) or "nothing")
        return "\n\n".join(filter(None, (network, GIT_NOTICE if self.sandboxed else "")))


def for_agents(section: SandboxSection, sandbox: str, env: Mapping[str, str]) -> NetworkPolicy:
    """For agents driven by a model. ``sandbox``: the sandbox's name. Raises SandboxUnavailableError."""
    kind: Kind = "open" if section.network == "auto" else section.network
    if section.network == "auto" and sandbox in WITH_PROXY:
        kind = "hosts"
    return _policy("sandbox.network", kind, section, sandbox, env)


def for_tools(section: SandboxSection, sandbox: str, env: Mapping[str, str]) -> NetworkPolicy:
    """For programs that an agent runs while its model is called from outside: like ``for_agents``, but without network
    unless the configuration names hosts or opens the network. Raises SandboxUnavailableError."""
    network_policy = for_agents(section, sandbox, env)
    wanted = section.hosts if network_policy.kind == "hosts" else section.network == "open"
    return network_policy if wanted or not network_policy.sandboxed else replace(network_policy, kind="none")


def for_commands(section: SandboxSection, sandbox: str, env: Mapping[str, str]) -> NetworkPolicy:
    """For programs that people start. Raises SandboxUnavailableError."""
    kind: Kind = "open" if section.command_network == "auto" else section.command_network
    if section.command_network == "auto" and sandbox == CONTAINER:
        # A container's only other network would be this machine's own, including its loopback.
        kind = "hosts" if section.hosts else "none"
    return _policy("sandbox.commandNetwork", kind, section, sandbox, env)


def summary(section: SandboxSection, sandbox: str) -> str:
    """The network access in force, in one line. Raises SandboxUnavailableError if the configuration asks for too
    much."""
    agents, commands = for_agents(section, sandbox, {}), for_commands(section, sandbox, {})
    listed = f"their model's service and {', '.join(section.hosts) or 'no other host'}"
    reach = {"hosts": listed, "open": "full network", "none": "none"}
    if sandbox == NO_SANDBOX:
        return f"agents and commands: {reach['open']}"
    people = reach[commands.kind] if commands.kind != "hosts" else ", ".join(section.hosts) or "no host"
    return (
        f"agents: {reach[agents.kind]} (sandbox.network); your commands: {people} "
        "(sandbox.commandNetwork); git: none"
    )


def _policy(
    key: str, kind: Kind, section: SandboxSection, sandbox: str, env: Mapping[str, str]
) -> NetworkPolicy:
    if sandbox == NO_SANDBOX:
        return NetworkPolicy("open")
    if kind == "hosts" and sandbox not in WITH_PROXY:
        raise SandboxUnavailableError(NO_PROXY_HERE.format(key=key))
    return NetworkPolicy(kind, section.hosts, sandboxed=True, dialer=Dialer(env))


async def try_network_access(sandbox: Sandbox, network_policy: NetworkPolicy) -> None:
    """Check that it works here, with a program that does nothing. Raises SandboxUnavailableError with what to do."""
    with trial_directories() as directories:
        workdir = directories.workdir
        async with await network_policy.open(workdir) as access:
            env = {"PATH": "/usr/bin:/bin", **access.env}
            policy = SandboxPolicy(workdir=workdir, home=directories.home, env=env, network=access.network)
            try:
                ended = await run_to_end(sandbox.wrap(PROGRAM, policy), limit_bytes=1, limit_s=TRIAL_S)
                code, said = ended.code, ended.stderr.strip()
            except AgentUnavailableError as error:
                code, said = -1, str(error)
    if code is None:
        said = f"no answer within {TRIAL_S:g} s"
    if code != 42:
        reason = said.splitlines()[-1] if said else f"exit code {code}"
        raise SandboxUnavailableError(
            f'agents cannot reach their model ({reason}): reinstall perl, or set sandbox.network to "open"'
        )
