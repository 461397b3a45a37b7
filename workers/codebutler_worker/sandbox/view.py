"""View: what shows of the machine behind the walls, whatever is worked on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from codebutler_worker.sandbox.checkout import Checkout
from codebutler_worker.sandbox.layout import Inside
from codebutler_worker.sandbox.named import home_paths, readable, refuse_links
from codebutler_worker.sandbox.port import SandboxPolicy


@dataclass(frozen=True, slots=True)
class View:
    """``hidden`` are directories no agent may see wherever they lie: the supervisor's home above all; ``readable``
    those outside the repository that each may read."""

    hidden: tuple[Path, ...]
    readable: tuple[Path, ...]

    @classmethod
    def of(cls, hidden: tuple[Path, ...], readable: tuple[Path, ...]) -> Self:
        """With those to hide that are there."""
        return cls(tuple(path.resolve() for path in hidden if path.is_dir()), readable)

    def inside(self, argv: tuple[str, ...], policy: SandboxPolicy, checkout: Checkout) -> Inside:
        """``policy`` looked up on disk; what does not exist is left out. Raises SandboxUnavailableError for a
        symbolic link."""
        for path in (path for path in self.hidden if path.is_relative_to(checkout.root)):
            refuse_links(checkout.root, path)
        return Inside(
            home=policy.home.resolve(),
            home_paths=home_paths(policy),
            readable=tuple((path, path.resolve()) for path in readable(argv, policy, self.readable)),
            hidden=self.hidden,
            network=policy.network,
            own_terminal=policy.own_terminal,
            scratch_bytes=policy.scratch_bytes,
        )
