"""BwrapSandbox: bubblewrap with a fixed layout and its own pid namespace, so that no process outlives its program.

SIGTERM to the wrapper kills everything inside at once, without asking the program.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from codebutler.config.git_repo import unreachable_because
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.checkout import Checkout, inspect_checkout
from codebutler_worker.sandbox.destinations import area_of
from codebutler_worker.sandbox.pins import Watcher
from codebutler_worker.sandbox.port import (
    Launch,
    ProxySocket,
    Sandbox,
    SandboxPolicy,
    trial_directories,
    trial_failure,
)
from codebutler_worker.sandbox.prelude import INSIDE, QUIET, SENDMSG, through, with_tracked
from codebutler_worker.sandbox.seccomp import FD, OPEN, FilterFile
from codebutler_worker.sandbox.system import (
    Inside,
    MachineView,
    SystemLayout,
    find_program,
    inspect_system,
    refuse_too_wide,
)

# The sandbox as bubblewrap arguments. Pure: takes everything that was looked up, returns an argv.
#
# The root is an empty, read-only directory that holds system directories (read-only), a private /tmp, /run and home,
# and the working directory. Later mounts cover earlier ones, so the order below is the policy. Options as of bubblewrap
# 0.8.

SCRATCH = ("/tmp", "/run", "/var/tmp")  # noqa: S108 - mount points, not files
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount point, too
# Root may write here even without capabilities, and core_pattern names a program that the kernel runs outside. No agent
# is root; if one were, bubblewrap 0.8 would protect these only where a directory itself looks writable.
KERNELS_OWN = ("sys", "sysrq-trigger", "irq", "bus", "fs", "scsi", "acpi")

# --disable-userns: nested user namespaces are the easiest way to reach kernel bugs.
NAMESPACES = (
    "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
    "--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL",
)  # fmt: skip
# Otherwise a program inside could type into the terminal that the supervisor was started from (TIOCSTI).
NO_TERMINAL = ("--new-session",)


def bwrap_argv(
    argv: tuple[str, ...], inside: Inside, checkout: Checkout, system: SystemLayout
) -> tuple[str, ...]:
    """The command that runs ``argv`` in ``checkout``.

    Raises SandboxUnavailableError if the sandbox cannot enforce the policy.
    """
    refuse_too_wide(inside, checkout, system.roots)
    for path in system.roots:
        if path.is_relative_to(inside.home):
            raise SandboxUnavailableError(f"{inside.home} cannot be a home directory: it contains {path}")
    # Never as root: if root started us, as the owner of the repository.
    owner = checkout.owner.become(system.setpriv, checkout.root) if system.uid == 0 else ()
    scratch = (*(("--size", str(inside.scratch_bytes)) if inside.scratch_bytes else ()), "--tmpfs")
    return (
        *owner, str(system.bwrap),
        *NAMESPACES,
        *(() if inside.own_terminal else NO_TERMINAL),
        *(() if inside.network == "open" else ("--unshare-net",)),
        *(() if inside.filter_fd is None else ("--seccomp", str(inside.filter_fd))),
        *(word for name, value in inside.inner_env.items() for word in ("--setenv", name, value)),
        *_system(inside, system, scratch),
        *_home(inside, system, scratch),
        *_checkout(inside, checkout, scratch),
        "--remount-ro", "/",
        "--chdir", str(checkout.root),
        "--", *argv,
    )  # fmt: skip


def _system(inside: Inside, system: SystemLayout, scratch: tuple[str, ...]) -> list[str]:
    """``scratch``: the option for a private directory in memory, which precedes its path."""
    options: list[str] = []
    for root in system.roots:
        options += ["--ro-bind", str(root), str(root)]
    for path, target in system.links:
        options += ["--symlink", target, str(path)]
    for file in system.masked_files:
        options += ["--ro-bind", "/dev/null", str(file)]
    hidden = (path for path in inside.hidden if area_of(path, system.roots))
    for directory in (*system.masked_directories, *hidden):
        options += ["--tmpfs", str(directory), "--remount-ro", str(directory)]
    options += ["--dev", "/dev", *scratch, SHARED_MEMORY, "--remount-ro", "/dev", "--proc", "/proc"]
    for name in KERNELS_OWN:
        options += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for file in system.telling:
        options += ["--ro-bind", "/dev/null", str(file)]
    for place in SCRATCH:
        options += [*scratch, place]
    options += ["--symlink", "../run", "/var/run"]
    if inside.network == "open" and system.resolver:
        options += ["--ro-bind", str(system.resolver), str(system.resolver)]
    if isinstance(inside.network, ProxySocket):
        options += ["--ro-bind", str(inside.network.path), INSIDE]
    return options


def _home(inside: Inside, system: SystemLayout, scratch: tuple[str, ...]) -> list[str]:
    options = [*scratch, str(inside.home)]
    shown = (*system.roots, *(link for link, _ in system.links), *(real for _, real in inside.readable))
    for path, real in inside.readable:
        if not area_of(real, system.roots):
            options += ["--ro-bind", str(real), str(real)]
        if path != real and not area_of(path, shown):
            options += ["--symlink", str(real), str(path)]
    for path in inside.home_paths:
        options += ["--bind", str(path), str(path)]
    return options


def _checkout(inside: Inside, checkout: Checkout, scratch: tuple[str, ...]) -> list[str]:
    options = ["--bind", str(checkout.root), str(checkout.root)]
    mounts = [(path, "--bind") for path in checkout.pinned]
    mounts += [(path, "--ro-bind") for path in (*checkout.closed, *checkout.fixed)]
    for path, option in sorted(mounts):  # a directory before what is in it; "--bind" before "--ro-bind"
        options += [option, str(path), str(path)]
    for path in inside.hidden:
        if path.is_relative_to(checkout.root):
            options += ["--tmpfs", str(path), "--remount-ro", str(path)]
    if checkout.private:
        writable = checkout.index is not None
        options += [*(scratch if writable else ("--tmpfs",)), str(checkout.private)]
        for path in checkout.shared:
            options += ["--bind", str(path), str(path)]
        if not writable:
            options += ["--remount-ro", str(checkout.private)]
    if checkout.sockets:
        for path in checkout.ways:
            options += ["--bind", str(path), str(path)]
        for path in checkout.sockets:
            options += ["--ro-bind", "/dev/null", str(path)]
    return options


INSTALL = "install it (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"
NO_INTERPRETER = (
    'the proxy of the sandbox needs perl or python3: install one, or set sandbox.network to "open"'
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


class BwrapSandbox(Sandbox):
    """Runs programs in bubblewrap. ``hidden`` are directories that no agent may see, wherever they are: above all the
    supervisor's home. ``readable`` are directories outside the repository that every agent may read.

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
        self._view = MachineView.of(hidden, readable)

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """Skips paths of ``policy`` that do not exist; refuses symbolic links."""
        checkout = inspect_checkout(policy.workdir, policy.home, filling=policy.filling)
        # Not --setenv: everybody can read a process's arguments. Not our own environment either: inside,
        # /proc/1/environ shows the wrapper's. So only variables that would affect the wrapper itself use --setenv.
        inside = self._view.inside(argv, policy, checkout)
        loader = {name: value for name, value in inside.env.items() if name.startswith("LD_")}
        inside = replace(inside, inner_env=loader, filter_fd=None if self.filter.missing else FD)
        if self._system.uid == 0 and checkout.owner.uid != 0:
            named = (*inside.home_paths, *(real for _, real in inside.readable))
            if why := unreachable_because(checkout.owner, checkout.root, *named):
                raise SandboxUnavailableError(why)
        argv = with_tracked(argv, checkout)
        if isinstance(policy.network, ProxySocket):
            perl = self._system.perl if self.filter.machine in SENDMSG else None
            if (interpreter := perl or self._system.python) is None:
                raise SandboxUnavailableError(NO_INTERPRETER)
            argv = through(policy.network, interpreter, argv, perl_on=self.filter.machine if perl else "")
            inside = replace(inside, inner_env=loader | QUIET) if perl else inside
        # The filter's path is $0: opened before any code of the agent runs, closed by bubblewrap itself.
        opened = (
            () if self.filter.missing else ("/bin/sh", "-c", OPEN, self.filter.paths[checkout.shared_git])
        )
        return Launch(
            argv=(*opened, *bwrap_argv(argv, inside, checkout, self._system)),
            env={name: value for name, value in inside.env.items() if name not in loader},
            cwd=Path("/"),
            guard=partial(self._watcher.hold, checkout),
            ends_whole=True,  # --unshare-pid, --die-with-parent
        )

    async def self_test(self) -> None:
        """Start a shell inside that checks the sandbox."""
        # 2 means a filter is in place (proc(5)).
        filtered = "0" if self.filter.missing else "2"
        with trial_directories() as directories:
            env = {"PATH": "/usr/bin:/bin", "OUTSIDE": str(directories.outside), "FILTER": filtered}
            policy = SandboxPolicy(
                workdir=directories.workdir, home=directories.home, env=env, network="none"
            )
            why = await trial_failure(self.wrap(("/bin/sh", "-c", SELF_TEST), policy))
        if why:
            raise SandboxUnavailableError(
                f"bubblewrap does not work here ({why}): allow unprivileged user namespaces "
                "(sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or update it"
            )
