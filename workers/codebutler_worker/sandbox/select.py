"""Choose the sandbox: the configured one, if it really works here. Fails closed."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.schema import SandboxMode, SandboxSection
from codebutler.domain.errors import SandboxUnavailableError
from codebutler.platform.system import this_system
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.common import NoSandbox, Sandbox, toolchains
from codebutler_worker.sandbox.limits import configured

WITHOUT = 'or, to run agents without a sandbox, set "sandbox": {"mode": "none"} in the global configuration'
ANYTHING = SandboxSection()


async def select_sandbox(
    mode: SandboxMode,
    *,
    trusted: bool,
    hidden: tuple[Path, ...] = (),
    section: SandboxSection = ANYTHING,
    idle_s: float = 60.0,
    home: Path | None = None,
) -> Sandbox:
    """The sandbox for ``mode``, self-tested. ``trusted``: whether ``mode`` comes from trusted configuration;
    ``section`` sets a container's limits and what is readable below ``home`` (the user's); ``idle_s``: how long a
    container waits for the next turn of its conversation.

    Raises SandboxUnavailableError with what to do.
    """
    if mode == "none":
        if not trusted:
            raise SandboxUnavailableError("sandbox.mode none is honoured in trusted configuration only")
        return NoSandbox()
    readable = toolchains(section.readable, home or Path.home(), hidden)
    errors = []
    for wanted in this_system().sandboxes if mode == "auto" else (mode,):
        try:
            sandbox = _made(wanted, hidden, readable, section, idle_s)
            await sandbox.self_test()
        except SandboxUnavailableError as error:
            errors.append(str(error))
        else:
            return sandbox
    raise SandboxUnavailableError("; ".join([*errors, WITHOUT]))


def _made(
    mode: SandboxMode,
    hidden: tuple[Path, ...],
    readable: tuple[Path, ...],
    section: SandboxSection,
    idle_s: float,
) -> Sandbox:
    if mode == "bwrap":
        if "bwrap" not in this_system().sandboxes:
            raise SandboxUnavailableError("bubblewrap works on Linux only: use docker, or on macOS seatbelt")
        return BwrapSandbox(hidden, readable=readable)
    # Most workers never need the others, so do not load them.
    if mode == "seatbelt":
        from codebutler_worker.sandbox.seatbelt import SeatbeltSandbox

        return SeatbeltSandbox(hidden, readable=readable)
    from codebutler_worker.sandbox.docker import DEFAULT, DockerSandbox

    return DockerSandbox(hidden, limits=configured(section, DEFAULT), idle_s=idle_s, readable=readable)
