"""BwrapSandbox: bubblewrap in a pinned layout, with a pid namespace of its own, so that nothing outlives a turn.

SIGTERM to the wrapper ends everything inside at once, without asking the program.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from codebutler.errors import SandboxUnavailableError
from codebutler_worker.sandbox import trial
from codebutler_worker.sandbox.checkout import inspect_checkout
from codebutler_worker.sandbox.filterfile import FD, FilterFile
from codebutler_worker.sandbox.handover import QUIET, SENDMSG, swiftly, through
from codebutler_worker.sandbox.layout import bwrap_argv
from codebutler_worker.sandbox.none import environment
from codebutler_worker.sandbox.person import require_way
from codebutler_worker.sandbox.pins import Pins, Watcher
from codebutler_worker.sandbox.port import Door, Launch, SandboxPolicy
from codebutler_worker.sandbox.system import find_program, inspect_system
from codebutler_worker.sandbox.tracked import with_tracked
from codebutler_worker.sandbox.view import View

INSTALL = "install it (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"
NO_INTERPRETER = (
    'the way out of the sandbox needs perl or python3: install it, or set sandbox.network to "open"'
)

# In one shell: not root, alone in its pid namespace, cannot write outside, can write in the directory.
SELF_TEST = r"""
[ "$(id -u)" != 0 ] || { echo "is root inside"; exit 1; }
[ ! -e "$OUTSIDE" ] || { echo "sees files outside"; exit 1; }
(: > /usr/.codebutler-self-test) 2>/dev/null && { echo "can write in /usr"; exit 1; }
[ "$(cat /proc/1/comm)" = bwrap ] || { echo "shares the host's processes"; exit 1; }
[ "$FILTER" = "$(sed -n 's/^Seccomp:\t//p' /proc/self/status)" ] || { echo "filters no system calls"; exit 1; }
echo written > here && cat here
"""


class BwrapSandbox:
    """``hidden`` are directories no agent may see wherever they lie: the supervisor's home above all; ``readable``
    those outside the repository that each may read.

    Raises SandboxUnavailableError if bubblewrap is not installed.
    """

    name = "bwrap"

    def __init__(
        self, hidden: tuple[Path, ...] = (), program: Path | None = None, readable: tuple[Path, ...] = ()
    ) -> None:
        self.filter = FilterFile()
        bwrap = program or find_program("bwrap")
        if bwrap is None:
            raise SandboxUnavailableError(f"bubblewrap is missing: {INSTALL}")
        self._system = inspect_system(bwrap)
        self._watcher = Watcher()
        self._view = View.of(hidden, readable)

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """See the port. Paths of ``policy`` that do not exist are left out; a symbolic link is refused."""
        checkout = inspect_checkout(policy.workdir, filling=policy.filling)
        # Not --setenv: everybody can read a process's arguments. And not our own environment: /proc/1/environ
        # inside shows what the wrapper was started with. Only what would change the wrapper itself is set.
        env = environment(policy)
        loader = {name: value for name, value in env.items() if name.startswith("LD_")}
        inside = replace(
            self._view.inside(argv, policy, checkout),
            env=tuple(loader.items()),
            filter_fd=None if self.filter.missing else FD,
        )
        if self._system.uid == 0 and not checkout.owner.is_root:
            require_way(checkout.owner, checkout.root, *inside.named)
        argv = with_tracked(argv, checkout)
        if isinstance(policy.network, Door):
            argv, quiet = self._through(policy.network, argv)
            inside = replace(inside, env=(*inside.env, *quiet))
        return Launch(
            argv=self.filter.before(
                bwrap_argv(argv, inside, checkout, self._system), shared=checkout.shared_git
            ),
            env={name: value for name, value in env.items() if name not in loader},
            cwd=Path("/"),
            guard=Pins(self._watcher, checkout.lasting, checkout.fleeting),
        )

    def _through(
        self, door: Door, argv: tuple[str, ...]
    ) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """The command, and what its interpreter needs to be told."""
        if self._system.perl is not None and self.filter.machine in SENDMSG:
            return swiftly(door, self._system.perl, self.filter.machine, argv), (QUIET,)
        if self._system.python is not None:
            return through(door, self._system.python, argv), ()
        raise SandboxUnavailableError(NO_INTERPRETER)

    async def self_test(self) -> None:
        """Start a shell inside and let it try the walls."""
        # 2: by a program, proc(5).
        filtered = "0" if self.filter.missing else "2"
        with trial.ground() as ground:
            env = {"PATH": "/usr/bin:/bin", "OUTSIDE": str(ground.outside), "FILTER": filtered}
            policy = SandboxPolicy(workdir=ground.workdir, home=ground.home, env=env, network="none")
            why = await trial.failure(self.wrap(("/bin/sh", "-c", SELF_TEST), policy))
        if why:
            raise SandboxUnavailableError(
                f"bubblewrap does not work here ({why}): allow unprivileged user namespaces "
                "(sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or update it"
            )
