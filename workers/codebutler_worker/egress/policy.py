"""Network access for the programs of one repository: what the configuration asks for, within the current sandbox."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from codebutler.config.schema import SandboxSection
from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.egress.access import IMPATIENT, Egress, NetworkAccess
from codebutler_worker.egress.hosts import PORTS, Dialer, HostPort, Hosts
from codebutler_worker.egress.proxy import Rules
from codebutler_worker.egress.service import ModelService
from codebutler_worker.sandbox.common import Sandbox, SandboxPolicy, trial_directories
from codebutler_worker.sandbox.prelude import GIT_TOLD
from codebutler_worker.sandbox.process import run_to_end

Kind = Literal["none", "hosts", "open"]

WITH_PROXY = ("bwrap", "docker")
"""The sandboxes that support the proxy."""
CONTAINER = "docker"
NO_SANDBOX = "none"
NAMED = 5
NO_PROXY_HERE = (
    '{key} "hosts" needs bubblewrap or docker: set sandbox.mode to "bwrap" or "docker", or {key} to "open"'
)
TOLD = (
    "The network of this sandbox: besides your model's service it reaches {hosts}. Other hosts answer 403, by the "
    "decision of this machine's owner: do not try to get around it. If a task needs one (say, to install packages), "
    'tell the person that the owner can add it to `sandbox.hosts`, or set `sandbox.network` to "open", in the '
    "configuration."
)
TOLD_NONE = (
    "This sandbox has no network, by the decision of this machine's owner: do not try to get around it. If a task "
    "needs one (say, to install packages), tell the person that the owner can name hosts in `sandbox.hosts` in the "
    "configuration."
)


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Opens network access as configured. ``hosts`` come from the configuration; ``sandboxed``: there is a sandbox, so
    a key can be kept outside it."""

    kind: Kind = "open"
    hosts: tuple[str, ...] = ()
    sandboxed: bool = False
    egress: Egress = field(default_factory=Egress)

    async def open(
        self, workdir: Path, service: ModelService | None = None, needed: tuple[str, ...] = ()
    ) -> NetworkAccess:
        """Network access for one program in ``workdir``: to ``service`` and, without a service, to the ``needed``
        hosts.

        Raises SandboxUnavailableError.
        """
        if self.kind == "none":
            return NetworkAccess("none", env=IMPATIENT)
        if not self.sandboxed:
            return NetworkAccess()
        # With an open network everybody on this machine can reach the proxy, so it serves the model's service only.
        listed = (*self.hosts, *needed) if self.kind == "hosts" else ()
        rules = Rules(Hosts(listed), service)
        uid = workdir.stat().st_uid if os.geteuid() == 0 else None
        return await self.egress.open(rules, self.kind, uid)

    def told(self) -> str:
        """What to tell an agent about its network; "" if nothing."""
        network = TOLD_NONE if self.kind == "none" else ""
        if self.kind == "hosts":
            network = TOLD.format(hosts=", ".join(self.hosts) or "nothing")
        return "\n\n".join(filter(None, (network, GIT_TOLD if self.sandboxed else "")))


def noted(text: str, refused: Sequence[HostPort]) -> str:
    """An agent's answer, with a line about the hosts it was refused. Pure."""
    if not refused:
        return text
    names = [f"`{place.host if place.port in PORTS else place.authority}`" for place in refused]
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    note = f"_⚠️ The sandbox blocked access to {', '.join(names[:NAMED])}{more}. To allow it, change `sandbox.hosts`._"
    return f"{text}\n\n{note}" if text else note


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
    return NetworkPolicy(kind, section.hosts, sandboxed=True, egress=Egress(Dialer(env)))


# Check that the network access works here, with a program that does nothing.

TRIAL_S = 20.0
PROGRAM = ("/bin/sh", "-c", "exit 42")


async def try_network_access(sandbox: Sandbox, network_policy: NetworkPolicy) -> None:
    """Raises SandboxUnavailableError with what to do."""
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
