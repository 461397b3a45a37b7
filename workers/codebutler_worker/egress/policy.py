"""What the configuration asks for as the network access of agents and commands, within the current sandbox."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from codebutler.config.schema import SandboxSection
from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.egress.access import Kind, NetworkPolicy
from codebutler_worker.egress.hosts import Dialer
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy, trial_directories
from codebutler_worker.sandbox.process import run_to_end

WITH_PROXY = ("bwrap", "docker")
"""The sandboxes that support the proxy."""
CONTAINER = "docker"
NO_SANDBOX = "none"
NO_PROXY_HERE = (
    '{key} "hosts" needs bubblewrap or docker: set sandbox.mode to "bwrap" or "docker", or {key} to "open"'
)


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
