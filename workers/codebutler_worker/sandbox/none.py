"""NoSandbox: no walls. Only a trusted configuration asks for it."""

from __future__ import annotations

from codebutler_worker.sandbox.port import Launch, SandboxPolicy


class NoSandbox:
    """Runs the program as it is, with the policy's environment, home and working directory."""

    name = "none"

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        return Launch(argv=argv, env=environment(policy), cwd=policy.workdir)

    async def self_test(self) -> None:
        """There is nothing that could fail."""


def environment(policy: SandboxPolicy) -> dict[str, str]:
    """The program's whole environment: what the policy gives, its HOME, and PWD, which bubblewrap sets too."""
    return {**policy.env, "HOME": str(policy.home), "PWD": str(policy.workdir)}
