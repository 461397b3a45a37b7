"""The walls as bubblewrap arguments. Pure: everything looked up comes in, an argv comes out.

The root is an empty, read-only directory in which system directories (read-only), a private /tmp, /run and
home, and the working directory appear. Later mounts cover earlier ones, so the order below is the policy.
Options as of bubblewrap 0.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from codebutler.errors import SandboxUnavailableError
from codebutler_worker.sandbox.checkout import Checkout
from codebutler_worker.sandbox.handover import INSIDE
from codebutler_worker.sandbox.person import become
from codebutler_worker.sandbox.port import Door, Network
from codebutler_worker.sandbox.system import System

SCRATCH = ("/tmp", "/run", "/var/tmp")  # noqa: S108 - mount points, not files
SHARED_MEMORY = "/dev/shm"  # noqa: S108
# Root may write there also without a capability, and core_pattern names a program that the kernel runs outside. No
# agent is root; should one be, bubblewrap 0.8 protects them only where a directory itself looks writable.
KERNELS_OWN = ("sys", "sysrq-trigger", "irq", "bus", "fs", "scsi", "acpi")

# --disable-userns: a nested user namespace is the widest road to kernel bugs.
NAMESPACES = (
    "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
    "--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL",
)  # fmt: skip
# Else what runs inside could type into the terminal that the supervisor was started from (TIOCSTI).
NO_TERMINAL = ("--new-session",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """A SandboxPolicy looked up on disk: every path exists.

    ``readable`` pairs a path with what it resolves to; ``hidden`` are directories to empty wherever they would
    show; ``env`` is only what must not reach the wrapper itself; ``scratch_bytes``: how much fits into each private
    directory (0 = no limit of ours); ``filter_fd``: where the filter of system calls is read from.
    """

    home: Path
    home_paths: tuple[Path, ...] = ()
    readable: tuple[tuple[Path, Path], ...] = ()
    hidden: tuple[Path, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    network: Network = "open"
    own_terminal: bool = False
    scratch_bytes: int = 0
    filter_fd: int | None = None

    @property
    def named(self) -> tuple[Path, ...]:
        """What is shown of this machine because the policy names it."""
        return (*self.home_paths, *(real for _, real in self.readable))


def bwrap_argv(argv: tuple[str, ...], inside: Inside, checkout: Checkout, system: System) -> tuple[str, ...]:
    """The command that runs ``argv`` in ``checkout``.

    Raises SandboxUnavailableError for a policy that walls cannot keep.
    """
    _refuse_too_wide(inside, checkout, system)
    return (
        *_identity(checkout, system),
        *NAMESPACES,
        *(() if inside.own_terminal else NO_TERMINAL),
        *(() if inside.network == "open" else ("--unshare-net",)),
        *(() if inside.filter_fd is None else ("--seccomp", str(inside.filter_fd))),
        *(word for name, value in inside.env for word in ("--setenv", name, value)),
        *_system(inside, system),
        *_home(inside, system),
        *_checkout(inside, checkout),
        "--remount-ro", "/",
        "--chdir", str(checkout.root),
        "--", *argv,
    )  # fmt: skip


def _refuse_too_wide(inside: Inside, checkout: Checkout, system: System) -> None:
    for path in (inside.home, *system.roots):
        if path.is_relative_to(checkout.root):
            raise SandboxUnavailableError(
                f"{checkout.root} contains {path}: register a directory below it instead"
            )
    for path in system.roots:
        if path.is_relative_to(inside.home):
            raise SandboxUnavailableError(f"{inside.home} cannot be a home directory: it contains {path}")
    for path in inside.home_paths:
        if checkout.root.is_relative_to(path):
            raise SandboxUnavailableError(
                f"{checkout.root} lies in the agent's own {path}: move it elsewhere"
            )


def _identity(checkout: Checkout, system: System) -> tuple[str, ...]:
    """Who the agent is: never root, and on somebody's repository that somebody."""
    if system.uid != 0:
        return (str(system.bwrap),)
    return (*become(checkout.owner, checkout.root, system.setpriv), str(system.bwrap))


def _system(inside: Inside, system: System) -> list[str]:
    options: list[str] = []
    for root in system.roots:
        options += ["--ro-bind", str(root), str(root)]
    for path, target in system.links:
        options += ["--symlink", target, str(path)]
    for file in system.masked_files:
        options += ["--ro-bind", "/dev/null", str(file)]
    hidden = (path for path in inside.hidden if _below(path, system.roots))
    for directory in (*system.masked_directories, *hidden):
        options += _empty(directory)
    options += ["--dev", "/dev", *_scratch(inside, SHARED_MEMORY), "--remount-ro", "/dev", "--proc", "/proc"]
    for name in KERNELS_OWN:
        options += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for file in system.telling:
        options += ["--ro-bind", "/dev/null", str(file)]
    for scratch in SCRATCH:
        options += _scratch(inside, scratch)
    options += ["--symlink", "../run", "/var/run"]
    if inside.network == "open" and system.resolver:
        options += ["--ro-bind", str(system.resolver), str(system.resolver)]
    if isinstance(inside.network, Door):
        options += ["--ro-bind", str(inside.network.path), INSIDE]
    return options


def _home(inside: Inside, system: System) -> list[str]:
    options = _scratch(inside, str(inside.home))
    shown = (*system.roots, *(link for link, _ in system.links), *(real for _, real in inside.readable))
    for path, real in inside.readable:
        if not _below(real, system.roots):
            options += ["--ro-bind", str(real), str(real)]
        if path != real and not _below(path, shown):
            options += ["--symlink", str(real), str(path)]
    for path in inside.home_paths:
        options += ["--bind", str(path), str(path)]
    return options


def _checkout(inside: Inside, checkout: Checkout) -> list[str]:
    options = ["--bind", str(checkout.root), str(checkout.root)]
    mounts = [(path, "--bind") for path in checkout.pinned]
    mounts += [(path, "--ro-bind") for path in (*checkout.closed, *checkout.fixed)]
    for path, option in sorted(mounts, key=lambda mount: len(mount[0].parts)):
        options += [option, str(path), str(path)]
    for path in inside.hidden:
        if path.is_relative_to(checkout.root):
            options += _empty(path)
    if checkout.private:
        writable = checkout.hides_tracked
        options += _scratch(inside, str(checkout.private)) if writable else ["--tmpfs", str(checkout.private)]
        for path in checkout.shared:
            options += ["--bind", str(path), str(path)]
        if not writable:
            options += ["--remount-ro", str(checkout.private)]
    for path in checkout.ways:
        options += ["--bind", str(path), str(path)]
    for path in checkout.sockets:
        options += ["--ro-bind", "/dev/null", str(path)]
    return options


def _scratch(inside: Inside, directory: str) -> list[str]:
    size = ["--size", str(inside.scratch_bytes)] if inside.scratch_bytes else []
    return [*size, "--tmpfs", directory]


def _empty(directory: Path) -> list[str]:
    return ["--tmpfs", str(directory), "--remount-ro", str(directory)]


def _below(path: Path, roots: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(root) for root in roots)
