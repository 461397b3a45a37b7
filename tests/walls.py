"""Sandboxes without walls, for tests of what stands behind them."""

from __future__ import annotations

from codebutler_worker.sandbox.none import NoSandbox
from codebutler_worker.sandbox.port import Launch, SandboxPolicy


class NoWalls:
    """Passes everything through; it calls itself a sandbox, so that root may skip an agent's permissions."""

    name = "test"

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        return Launch(argv, policy.env, policy.workdir)

    async def self_test(self) -> None:
        return


def as_it_is() -> NoSandbox:
    """What an ordinary user gets without walls, for tests that root runs in directories of its own."""
    return NoSandbox(uid=1000)
