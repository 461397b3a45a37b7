"""Network access for the programs of one repository: what the configuration asks for, within the current sandbox."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from codebutler.config.schema import SandboxSection
from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.egress.hosts import PORTS, Dialer, HostPort, Hosts
from codebutler_worker.egress.proxy import Rules
from codebutler_worker.egress.service import ModelService
from codebutler_worker.egress.way import Egress, Way
from codebutler_worker.programs.process import run_to_end
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.sandbox.prelude import GIT_TOLD
from codebutler_worker.sandbox.walls import trial_ground

Kind = Literal["none", "hosts", "open"]

WITH_PROXY = ("bwrap", "docker")
"""The sandboxes that support the proxy."""
CONTAINER = "docker"
WITHOUT_WALLS = "none"
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
class Outlet:
    """``hosts`` come from the configuration; ``walls``: there is a sandbox, so a key can be kept outside it."""

    kind: Kind = "open"
    hosts: tuple[str, ...] = ()
    walls: bool = False
    egress: Egress = field(default_factory=Egress)

    async def open(
        self, workdir: Path, service: ModelService | None = None, needed: tuple[str, ...] = ()
    ) -> Way:
        """Network access for one program in ``workdir``: to ``service`` and, without a service, to the ``needed``
        hosts.

        Raises SandboxUnavailableError.
        """
        if self.kind == "none" or not self.walls:
            return Way.without_proxy("none" if self.kind == "none" else "open")
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
        return "\n\n".join(filter(None, (network, GIT_TOLD if self.walls else "")))


def noted(text: str, refused: Sequence[HostPort]) -> str:
    """An agent's answer, with a line about the hosts it was refused. Pure."""
    if not refused:
        return text
    names = [f"`{place.host if place.port in PORTS else place.authority}`" for place in refused]
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    note = f"_⚠️ The sandbox blocked access to {', '.join(names[:NAMED])}{more}. To allow it, change `sandbox.hosts`._"
    return f"{text}\n\n{note}" if text else note


def for_agents(section: SandboxSection, walls: str, env: Mapping[str, str]) -> Outlet:
    """For agents driven by a model. ``walls``: the sandbox's name. Raises SandboxUnavailableError."""
    kind: Kind = "open" if section.network == "auto" else section.network
    if section.network == "auto" and walls in WITH_PROXY:
        kind = "hosts"
    return _outlet("sandbox.network", kind, section, walls, env)


def for_tools(section: SandboxSection, walls: str, env: Mapping[str, str]) -> Outlet:
    """For programs that an agent runs while its model is called from outside: like ``for_agents``, but without network
    unless the configuration names hosts or opens the network. Raises SandboxUnavailableError."""
    outlet = for_agents(section, walls, env)
    wanted = section.hosts if outlet.kind == "hosts" else section.network == "open"
    return outlet if wanted or not outlet.walls else replace(outlet, kind="none")


def for_commands(section: SandboxSection, walls: str, env: Mapping[str, str]) -> Outlet:
    """For programs that people start. Raises SandboxUnavailableError."""
    kind: Kind = "open" if section.command_network == "auto" else section.command_network
    if section.command_network == "auto" and walls == CONTAINER:
        # A container's only other network would be this machine's own, including its loopback.
        kind = "hosts" if section.hosts else "none"
    return _outlet("sandbox.commandNetwork", kind, section, walls, env)


def summary(section: SandboxSection, walls: str) -> str:
    """The network access in force, in one line. Raises SandboxUnavailableError if the configuration asks for too
    much."""
    agents, commands = for_agents(section, walls, {}), for_commands(section, walls, {})
    listed = f"their model's service and {', '.join(section.hosts) or 'no other host'}"
    reach = {"hosts": listed, "open": "full network", "none": "none"}
    if walls == WITHOUT_WALLS:
        return f"agents and commands: {reach['open']}"
    people = reach[commands.kind] if commands.kind != "hosts" else ", ".join(section.hosts) or "no host"
    return (
        f"agents: {reach[agents.kind]} (sandbox.network); your commands: {people} "
        "(sandbox.commandNetwork); git: none"
    )


def _outlet(key: str, kind: Kind, section: SandboxSection, walls: str, env: Mapping[str, str]) -> Outlet:
    if walls == WITHOUT_WALLS:
        return Outlet("open")
    if kind == "hosts" and walls not in WITH_PROXY:
        raise SandboxUnavailableError(NO_PROXY_HERE.format(key=key))
    return Outlet(kind, section.hosts, walls=True, egress=Egress(Dialer(env)))


# Check that the network access works here, with a program that does nothing.

TRIAL_S = 20.0
PROGRAM = ("/bin/sh", "-c", "exit 42")


async def try_way_out(sandbox: Sandbox, outlet: Outlet) -> None:
    """Raises SandboxUnavailableError with what to do."""
    with trial_ground() as ground:
        workdir = ground.workdir
        async with await outlet.open(workdir) as way:
            env = {"PATH": "/usr/bin:/bin", **way.env}
            policy = SandboxPolicy(workdir=workdir, home=ground.home, env=env, network=way.network)
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
