"""DockerSandbox: programs in containers of an image that `codebutler sandbox build` makes.

For machines where bubblewrap does not work. The docker daemon is root: anyone who can reach it controls the machine, so
no container gets its socket.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.cgroups import ResourceLimits
from codebutler_worker.sandbox.checkout import inspect_checkout
from codebutler_worker.sandbox.containers import Containers, Docker, Recipe
from codebutler_worker.sandbox.docker_argv import WORKSPACE, agent_of, exec_argv, look, run_options, words
from codebutler_worker.sandbox.docker_filter import ProfileFile
from codebutler_worker.sandbox.limits import listed
from codebutler_worker.sandbox.pins import Watcher
from codebutler_worker.sandbox.port import Launch, ProxySocket, Sandbox, SandboxPolicy, environment
from codebutler_worker.sandbox.prelude import through, with_tracked
from codebutler_worker.sandbox.system import find_program
from codebutler_worker.sandbox.walls import PASSED, MachineView, trial_ground

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


class DockerSandbox(Sandbox):
    """``hidden`` are directories that no agent may see, ``readable`` those outside the repository that every agent may
    read; ``host`` is the daemon's address, "" = the usual one; ``limits`` apply to each container; a container idle for
    ``idle_s`` is removed.

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
        command, env = exec_argv(
            self._docker.argv, argv, environment(policy), checkout, terminal=policy.own_terminal
        )
        return Launch(
            argv=command,
            env=env,
            cwd=Path("/"),
            enclose=partial(self._containers.enter, recipe),
            guard=partial(self._watcher.hold, checkout.lasting, checkout.fleeting),
        )

    async def self_test(self) -> None:
        """Start a shell inside that checks the sandbox."""
        with trial_ground() as ground:
            ground.workdir.parent.chmod(0o755)
            env = {"PATH": "/usr/bin:/bin", "OUTSIDE": str(ground.outside)}
            policy = SandboxPolicy(
                workdir=ground.workdir, home=ground.home, env=env, network="none", conversation="self-test"
            )
            launch = self.wrap(("/bin/sh", "-c", SELF_TEST), policy)
            assert launch.enclose is not None
            container = await launch.enclose()
            try:
                words = container.enter(launch.argv)[len(self._docker.argv) :]
                output = await self._docker.run(*words, env=launch.env)
            finally:
                await container.close()
                await self.release("self-test")
        if output != PASSED:
            raise SandboxUnavailableError(f"docker does not work here ({output[-300:] or 'no output'})")

    @property
    def told(self) -> str:
        """A container's limits, in one line."""
        return f"each conversation may use {listed(self.limits)} (a container of its own)"

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
