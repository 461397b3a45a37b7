"""The walls as arguments of `docker run` and `docker exec`. Pure: everything looked up comes in.

The image is the system; of this machine only what is mounted shows. The checkout appears where it is on this machine
(agents keep sessions by its path) and, as docker's users expect, in /workspace: with the same pins in both places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.ownership import ROOTS_OWN
from codebutler.config.runner import IDLER
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.cgroups import ResourceLimits
from codebutler_worker.sandbox.checkout import Checkout
from codebutler_worker.sandbox.handover import INSIDE
from codebutler_worker.sandbox.port import Door
from codebutler_worker.sandbox.system import SYSTEM_ROOTS
from codebutler_worker.sandbox.view import Inside

WORKSPACE = Path("/workspace")
# The image brings these; what is named elsewhere below /usr and /opt is this machine's own.
IMAGES_OWN = (
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
)
# The first process of a container reads until nobody holds the other end: then all that is in there ends with it. It
# ignores its children's ends, so that the kernel takes them away (wait(2)).
IDLE = ("/bin/sh", "-c", f'trap "" CHLD; echo up; [ ! -x {IDLER} ] || exec {IDLER}; exec cat')
PLACE = "{container}"
"""Stands for the container's name in the arguments of `docker exec`."""

# What changes the client itself must not reach it; like other programs' arguments it can be read on this machine.
CLIENTS = ("DOCKER_", "LD_", "BUILDKIT_", "OTEL_", "GODEBUG")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who an agent is inside."""

    uid: int
    gid: int

    @classmethod
    def of(cls, uid: int, gid: int) -> Identity:
        """Whoever the checkout belongs to; never root's group."""
        return AGENT if uid == AGENT.uid else cls(uid, gid or uid)


AGENT = Identity(1000, 1000)
"""Of the image, and of every container whose repository belongs to nobody else."""


@dataclass(frozen=True, slots=True)
class Bind:
    """What of this machine shows where in a container."""

    source: Path
    place: Path
    read_only: bool = False

    @property
    def option(self) -> str:
        """As docker reads it."""
        fields = ["type=bind", f"source={self.source}", f"destination={self.place}"]
        return "--mount=" + ",".join(_field(field) for field in (*fields, *["readonly"] * self.read_only))


def binds(options: Sequence[str | Bind]) -> tuple[Bind, ...]:
    """Those among ``options``."""
    return tuple(option for option in options if isinstance(option, Bind))


def words(options: Sequence[str | Bind]) -> tuple[str, ...]:
    """``options`` as docker reads them."""
    return tuple(option.option if isinstance(option, Bind) else option for option in options)


def run_options(
    inside: Inside, checkout: Checkout, identity: Identity, limits: ResourceLimits
) -> tuple[str | Bind, ...]:
    """The options of `docker run` for a container in which programs see ``inside`` and ``checkout``.

    Raises SandboxUnavailableError for a policy that these walls cannot keep.
    """
    _refuse(inside, checkout, identity)
    size = f"{limits.memory_bytes // 2**20}m" if limits.memory_bytes else ""
    return (
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        *((f"--pids-limit={limits.processes}",) if limits.processes else ()),
        *((f"--cpus={limits.cpus:g}",) if limits.cpus else ()),
        *((f"--memory={size}",) if size else ()),
        f"--user={identity.uid}:{identity.gid}",
        f"--workdir={WORKSPACE}",
        f"--network={'host' if inside.network == 'open' else 'none'}",
        *((f"--ulimit=fsize={limits.file_bytes}",) if limits.file_bytes else ()),
        "--ulimit=core=0",
        *((f"--memory-swap={size}",) if size else ()),  # else docker gives as much of it once more
        "--log-driver=none",  # it would be a file without a limit
        # Else docker shows who answers for names in this machine's network.
        *(() if inside.network == "open" else ("--dns=127.0.0.1", "--dns-search=.")),
        *(
            [Bind(inside.network.path, Path(INSIDE), read_only=True)]
            if isinstance(inside.network, Door)
            else []
        ),
        "--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777,size=256m",
        *_home(inside, checkout, identity),
        *_checkout(inside, checkout, checkout.root, identity),
        *_checkout(inside, checkout, WORKSPACE, identity),
    )


def exec_argv(
    client: tuple[str, ...], argv: tuple[str, ...], env: dict[str, str], checkout: Checkout, *, terminal: bool
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command that runs ``argv`` in the container that PLACE stands for, and the client's own environment.

    Values go through the client's environment, for everybody can read a process's arguments.
    """
    named: list[str] = ["--env", "HOSTNAME"]  # docker's own, unset
    for name, value in env.items():
        named += ["--env", f"{name}={value}" if name.startswith(CLIENTS) else name]
    options = ("--interactive", *(("--tty",) if terminal else ()), "--workdir", str(checkout.root))
    own = {name: value for name, value in env.items() if not name.startswith(CLIENTS)}
    return (*client, "exec", *options, *named, PLACE, *argv), own


def _refuse(inside: Inside, checkout: Checkout, identity: Identity) -> None:
    if identity.uid == 0:
        raise SandboxUnavailableError(ROOTS_OWN.format(repo=checkout.root))
    for path in (inside.home, *SYSTEM_ROOTS, WORKSPACE):
        if path.is_relative_to(checkout.root) or checkout.root == WORKSPACE:
            raise SandboxUnavailableError(
                f"{checkout.root} contains {path}: register a directory below it instead"
            )
    for path in inside.home_paths:
        if checkout.root.is_relative_to(path):
            raise SandboxUnavailableError(
                f"{checkout.root} lies in the agent's own {path}: move it elsewhere"
            )
    for path in (inside.home, checkout.root):
        if ":" in str(path):
            raise SandboxUnavailableError(f"docker cannot mount {path}: it has a colon in its name")


def _home(inside: Inside, checkout: Checkout, identity: Identity) -> list[str | Bind]:
    owner = f"mode=0700,uid={identity.uid},gid={identity.gid},size=64m"
    options: list[str | Bind] = [f"--tmpfs={inside.home}:rw,exec,nosuid,nodev,{owner}"]
    shown: set[Path] = set()
    for path, real in inside.readable:
        if _below(path, IMAGES_OWN) and _below(real, IMAGES_OWN):
            continue
        # A link and its target both show: a container has no links that its image lacks.
        for place in (real, path):
            if place not in shown and not place.is_relative_to(checkout.root):
                shown.add(place)
                options.append(Bind(real, place, read_only=True))
    return options + [Bind(path, path) for path in inside.home_paths]


def _checkout(inside: Inside, checkout: Checkout, place: Path, identity: Identity) -> list[str | Bind]:
    """The mounts that show ``checkout`` at ``place``, pinned and fixed there too."""
    hidden = [path for path in inside.hidden if path.is_relative_to(checkout.root)]
    private = [checkout.private] if checkout.private else []
    options: list[str | Bind] = [Bind(checkout.root, place)]
    options += [
        Bind(path, to) for path, to in _moved((*checkout.pinned, *checkout.ways), checkout.root, place)
    ]
    read_only = (*checkout.closed, *checkout.fixed)  # docker mounts what lies deeper later
    options += [Bind(path, to, read_only=True) for path, to in _moved(read_only, checkout.root, place)]
    options += [_empty(to, identity) for _, to in _moved(hidden, checkout.root, place)]
    options += [
        _empty(to, identity, writable=checkout.hides_tracked)
        for _, to in _moved(private, checkout.root, place)
    ]
    options += [Bind(path, to) for path, to in _moved(checkout.shared, checkout.root, place)]
    nothing = Path("/dev/null")
    options += [Bind(nothing, to, read_only=True) for _, to in _moved(checkout.sockets, checkout.root, place)]
    return options


def _moved(paths: Sequence[Path], root: Path, place: Path) -> list[tuple[Path, Path]]:
    """Each path and where it shows; what lies outside of ``root`` (a worktree's git directory) shows once."""
    below = [(path, place / path.relative_to(root)) for path in paths if path.is_relative_to(root)]
    beside = [(path, path) for path in paths if not path.is_relative_to(root)] if place == root else []
    return beside + below


def _field(text: str) -> str:
    """One field of the comma-separated value that docker reads (RFC 4180)."""
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\n\r') else text


def _empty(path: Path, identity: Identity, *, writable: bool = False) -> str:
    # Of whoever has to pass: the daemon gives it the mode of the directory below, whatever is said here.
    owner = f"mode=0755,uid={identity.uid},gid={identity.gid}"
    if writable:
        return f"--tmpfs={path}:rw,nosuid,nodev,{owner},size=64m"
    return f"--tmpfs={path}:ro,nosuid,nodev,noexec,{owner},size=4k"


def _below(path: Path, places: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(place) for place in places)
