"""Choose the sandbox: the configured one, if it really works here, or none. Fails closed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from codebutler.config.schema import SandboxMode, SandboxSection
from codebutler.domain.errors import SandboxUnavailableError
from codebutler.platform.system import this_system
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.limits import configured
from codebutler_worker.sandbox.person import as_owner
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy

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


class NoSandbox(Sandbox):
    """Runs the program as it is, with the policy's environment, home and working directory; if we are root, as the
    owner of the working directory. Only a trusted configuration can ask for it. ``uid``: our user, None = find out."""

    name = "none"

    def __init__(self, uid: int | None = None) -> None:
        self._uid = os.geteuid() if uid is None else uid

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """Raises SandboxUnavailableError if the program would have to run as root."""
        before = as_owner(policy.workdir, policy.workdir, Path(argv[0]), uid=self._uid)
        env = {**policy.env, "HOME": str(policy.home), "PWD": str(policy.workdir)}
        return Launch(argv=(*before, *argv), env=env, cwd=policy.workdir)

    async def self_test(self) -> None:
        """Does nothing: without a sandbox nothing can fail."""


def toolchains(named: Sequence[str], home: Path, hidden: Sequence[Path]) -> tuple[Path, ...]:
    """The directories of ``sandbox.readable``; one that does not exist may be created later.

    Raises SandboxUnavailableError for one that is more than a toolchain: it contains the home, or a path that no agent
    may see.
    """
    found = tuple(home / name[2:] if name.startswith("~/") else Path(name) for name in named)
    for name, path in zip(named, found, strict=True):
        real = path.resolve()
        for kept in (home.resolve(), *(each.resolve() for each in hidden)):
            if kept.is_relative_to(real):
                raise SandboxUnavailableError(
                    f"sandbox.readable: {name} contains {kept}, which agents must not see: name a directory below it"
                )
        if any(real.is_relative_to(each.resolve()) for each in hidden):
            raise SandboxUnavailableError(
                f"sandbox.readable: {name} belongs to CodeButler: remove it from the list"
            )
    return found
