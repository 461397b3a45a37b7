"""DockerSandbox: programs in containers of an image that `codebutler sandbox build` makes.

For machines where bubblewrap does not work. The docker daemon is root: anyone who can reach it controls the machine, so
no container gets its socket. A container's system call filter has the same rules as under bubblewrap, in docker's
format.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from codebutler.domain.errors import SandboxUnavailableError
from codebutler.platform.system import this_system
from codebutler_worker.sandbox.cgroups import ResourceLimits
from codebutler_worker.sandbox.checkout import inspect_checkout
from codebutler_worker.sandbox.containers import Containers, Docker, Recipe
from codebutler_worker.sandbox.docker_argv import WORKSPACE, agent_of, exec_argv, look, run_options, words
from codebutler_worker.sandbox.limits import listed
from codebutler_worker.sandbox.pins import Watcher
from codebutler_worker.sandbox.port import (
    PASSED,
    Launch,
    ProxySocket,
    Sandbox,
    SandboxPolicy,
    trial_directories,
)
from codebutler_worker.sandbox.prelude import through, with_tracked
from codebutler_worker.sandbox.seccomp import (
    AARCH64,
    MAKING,
    NEW_NAMESPACES,
    NEW_TIME,
    SEIZING,
    SETGID,
    SETUID,
    TERMINAL_INPUT,
    X86_64,
)
from codebutler_worker.sandbox.system import MachineView, find_program

INSTALL = "install it (Debian, Ubuntu: apt-get install docker.io)"
PYTHON = Path("/usr/bin/python3")
DEFAULT = ResourceLimits(memory_bytes=512 * 2**20, processes=128, cpus=1)
"""A container's limits if the configuration sets none."""
SELF_TEST = """
[ "$(id -u)" != 0 ] || { echo "is root inside"; exit 1; }
[ ! -e "$OUTSIDE" ] || { echo "sees files outside"; exit 1; }
(: > /usr/.codebutler-self-test) 2>/dev/null && { echo "can write in /usr"; exit 1; }
[ "$(cat /proc/1/comm)" = cat ] || { echo "shares the host's processes"; exit 1; }
(: > /tmp/self-test) || { echo "cannot write in /tmp"; exit 1; }
git --version > /dev/null || { echo "has no git in its image"; exit 1; }
echo written > here && cat here
"""
WORD = 0xFFFFFFFF
"""The kernel takes these arguments as 32 bits."""
OLD = (
    "afs_syscall", "get_mempolicy", "getpmsg", "mbind", "name_to_handle_at", "putpmsg", "security", "set_mempolicy",
    "set_mempolicy_home_node", "stime", "sysfs", "tuxcall", "umount", "ustat", "vm86", "vm86old", "vserver",
)  # fmt: skip
"""Obsolete, or only for privileges that no agent has: docker's profile refuses them."""
FAMILIES = (1, 2, 10, 16)
NETLINK = 16
MOST_FAMILIES = 64
MODES = {
    "creat": 1, "chmod": 1, "fchmod": 1, "mknod": 1, "mknodat": 2, "fchmodat": 2, "fchmodat2": 2,
}  # fmt: skip
OPENING = {"open": (1, 2), "openat": (2, 3)}
Condition = dict[str, Any]


class DockerSandbox(Sandbox):
    """Runs programs in containers. ``hidden`` are directories that no agent may see, ``readable`` those outside the
    repository that every agent may read; ``host`` is the daemon's address, "" = the usual one; ``limits`` apply to each
    container; a container idle for ``idle_s`` is removed.

    Raises SandboxUnavailableError if the docker client is not installed.
    """

    name = "docker"

    def __init__(
        self,
        hidden: tuple[Path, ...] = (),
        host: str = "",
        limits: ResourceLimits = DEFAULT,
        idle_s: float = 60.0,
        readable: tuple[Path, ...] = (),
    ) -> None:
        program = find_program("docker")
        if program is None:
            raise SandboxUnavailableError(f"docker is missing: {INSTALL}")
        self.limits = limits
        self._docker = Docker(program, host or usual_host())
        self._containers = Containers(self._docker, idle_s, limits)
        self._watcher = Watcher()
        self._profile = ProfileFile(self._containers)
        self._view = MachineView.of(hidden, readable)

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """Starts nothing yet: the container is created with the launch."""
        if "=" in argv[0]:
            raise SandboxUnavailableError(f"{argv[0]} cannot be started in docker: its name contains =")
        checkout = inspect_checkout(policy.workdir, policy.home, filling=policy.filling)
        inside = self._view.inside(argv, policy, checkout)
        # Who else could write there? Root is refused.
        who = agent_of(checkout.owner)
        argv = with_tracked(argv, checkout, f". {WORKSPACE}")
        if isinstance(policy.network, ProxySocket):
            argv = through(policy.network, PYTHON, argv)
        profile = self._profile.option(shared=checkout.shared_git)
        options = (*run_options(inside, checkout, who, self.limits), profile)
        recipe = Recipe(
            policy.conversation,
            words(options),
            look(options),
            reusable=not isinstance(policy.network, ProxySocket),
        )
        command, env = exec_argv(self._docker.argv, argv, inside.env, checkout, terminal=policy.own_terminal)
        return Launch(
            argv=command,
            env=env,
            cwd=Path("/"),
            enclose=partial(self._containers.enclose, recipe),
            guard=partial(self._watcher.hold, checkout),
        )

    async def self_test(self) -> None:
        """Start a shell inside that checks the sandbox."""
        with trial_directories() as directories:
            directories.workdir.parent.chmod(0o755)
            env = {"PATH": "/usr/bin:/bin", "OUTSIDE": str(directories.outside)}
            policy = SandboxPolicy(
                workdir=directories.workdir,
                home=directories.home,
                env=env,
                network="none",
                conversation="self-test",
            )
            launch = self.wrap(("/bin/sh", "-c", SELF_TEST), policy)
            assert launch.enclose is not None
            container, command = await launch.enclose(launch.argv)
            try:
                output = await self._docker.run(*command[len(self._docker.argv) :], env=launch.env)
            finally:
                await container.close()
                await self.release("self-test")
        if output != PASSED:
            raise SandboxUnavailableError(f"docker does not work here ({output[-300:] or 'no output'})")

    @property
    def own_limits(self) -> str:
        """A container's limits, in one line."""
        return f"each conversation may use {listed(self.limits)} (its own container)"

    async def release(self, conversation: str) -> None:
        """The conversation is over: remove everything kept for it."""
        await self._containers.release(conversation)

    async def sweep(self) -> int:
        """Remove the containers of workers that no longer run; returns how many."""
        return await self._containers.sweep()

    async def close(self) -> None:
        """Remove every container of this worker."""
        await self._containers.close()


def usual_host() -> str:
    """Where the daemon listens: docker's own variable, this user's own daemon (rootless), or the system's."""
    if host := os.environ.get("DOCKER_HOST"):
        return host
    own = Path(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent")) / "docker.sock"
    return f"unix://{own}" if own.is_socket() else "unix:///var/run/docker.sock"


class ProfileFile:
    """A file that docker's client can read. It lives as long as ``owner``, which starts containers later."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._paths: dict[bool, str] = {}

    def option(self, *, shared: bool = False) -> str:
        """For `docker run`; ``shared``: see ``seccomp.program``."""
        if shared not in self._paths:
            self._paths[shared] = this_system().unwritable(profile(shared=shared), self._owner)
        return f"--security-opt=seccomp={self._paths[shared]}"


def profile(*, shared: bool = False) -> bytes:
    """JSON for ``--security-opt=seccomp=FILE``. ``shared``: see ``seccomp.program``."""
    rules = [_refused(sorted({*X86_64, *AARCH64, *OLD})), _refused(("clone3", "openat2"), code=errno.ENOSYS)]
    rules += [_refused(("clone",), _any(0, bit)) for bit in _bits(NEW_NAMESPACES)]
    rules += [_refused(("unshare",), _any(0, bit)) for bit in _bits(NEW_NAMESPACES | NEW_TIME)]
    # All but asking: which ones are harmless cannot be decided here.
    rules.append(_refused(("personality",), _compared(0, "SCMP_CMP_NE", WORD)))
    rules += [_refused(("ptrace",), _is(0, request)) for request in SEIZING]
    rules += [_refused(("ioctl",), _is(1, request)) for request in TERMINAL_INPUT]
    sockets = ("socket", "socketpair")
    rules += [_refused(sockets, _is(0, one)) for one in range(MOST_FAMILIES) if one not in FAMILIES]
    rules.append(_refused(sockets, _compared(0, "SCMP_CMP_GE", MOST_FAMILIES)))
    rules.append(_refused(sockets, _is(0, NETLINK), _compared(2, "SCMP_CMP_NE", 0)))
    for bit in (SETUID,) if shared else (SETUID, SETGID):
        rules += [_refused((name,), _any(mode, bit)) for name, mode in MODES.items()]
    for bit in (SETUID, SETGID):
        for name, (flags, mode) in OPENING.items():
            rules += [_refused((name,), _any(flags, making), _any(mode, bit)) for making in _bits(MAKING)]
    return msgspec.json.encode({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules})


def _refused(names: Iterable[str], *conditions: Condition, code: int = errno.EPERM) -> dict[str, Any]:
    return {
        "names": list(names),
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": code,
        "args": list(conditions),
        "includes": {},
        "excludes": {},
    }


def _compared(index: int, how: str, value: int, other: int = 0) -> Condition:
    return {"index": index, "value": value, "valueTwo": other, "op": how}


def _is(index: int, value: int) -> Condition:
    return _compared(index, "SCMP_CMP_MASKED_EQ", WORD, value)


def _any(index: int, bit: int) -> Condition:
    return _compared(index, "SCMP_CMP_MASKED_EQ", bit, bit)


def _bits(mask: int) -> list[int]:
    return [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
