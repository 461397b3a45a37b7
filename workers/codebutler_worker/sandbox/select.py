"""Which walls to use: what the configuration asks for, if it really works here. Fails closed."""

from __future__ import annotations

import sys
from pathlib import Path

from codebutler.config.schema import SandboxMode
from codebutler.errors import SandboxUnavailableError
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.none import NoSandbox
from codebutler_worker.sandbox.port import Sandbox

WITHOUT = 'or, to run agents without walls, set "sandbox": {"mode": "none"} in the global configuration'


async def select_sandbox(mode: SandboxMode, *, trusted: bool, hidden: tuple[Path, ...] = ()) -> Sandbox:
    """The sandbox for ``mode``, self-tested. ``trusted``: whether ``mode`` comes from trusted configuration.

    Raises SandboxUnavailableError with what to do.
    """
    if mode == "none":
        if not trusted:
            raise SandboxUnavailableError("sandbox.mode none is honoured in trusted configuration only")
        return NoSandbox()
    if mode in ("docker", "seatbelt"):
        raise SandboxUnavailableError(f"sandbox.mode {mode} is not available yet: use bwrap, {WITHOUT}")
    if sys.platform != "linux":
        raise SandboxUnavailableError(f"no sandbox works on this system yet: use Linux, {WITHOUT}")
    try:
        sandbox = BwrapSandbox(hidden)
        await sandbox.self_test()
    except SandboxUnavailableError as error:
        raise SandboxUnavailableError(f"{error}; {WITHOUT}") from error
    return sandbox
