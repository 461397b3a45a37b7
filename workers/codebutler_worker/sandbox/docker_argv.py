"""The sandbox as arguments of `docker run` and `docker exec`, and the check that a container's mounts are as requested.

The image is the system; of this machine a container sees only what is mounted. The checkout appears at its path on this
machine (agents store sessions by path) and, as docker users expect, in /workspace, with the same pins in both places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from codebutler.config.git_repo import ROOTS_OWN, Owner
from codebutler.config.programs import IDLER, RUNNER
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.cgroups import ResourceLimits
from codebutler_worker.sandbox.checkout import Checkout
from codebutler_worker.sandbox.destinations import area_of
from codebutler_worker.sandbox.port import ProxySocket
from codebutler_worker.sandbox.prelude import INSIDE
from codebutler_worker.sandbox.system import SYSTEM_ROOTS, Inside, refuse_too_wide, status_without_links

WORKSPACE = Path("/workspace")
# The image has these itself; other named paths below /usr and /opt come from this machine.
IMAGES_OWN = tuple(
    map(
        Path,
        ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/usr/bin", "/usr/sbin", "/usr/lib"],
    )
)
# A container's first process reads until the other end closes; then everything inside ends with it. It ignores SIGCHLD,
# so that the kernel reaps its children (wait(2)).
IDLE = ("/bin/sh", "-c", f'trap "" CHLD; echo up; [ ! -x {IDLER} ] || exec {IDLER}; exec cat')
PLACE = "{container}"
"""Placeholder for the container's name in the arguments of `docker exec`."""

# Variables that change the client itself must not reach it; everybody on this machine can read its arguments.
CLIENTS = ("DOCKER_", "LD_", "BUILDKIT_", "OTEL_", "GODEBUG")


AGENT = Owner(1000, 1000)
"""The image's user, used unless the repository belongs to somebody else."""


def agent_of(owner: Owner) -> Owner:
    """The user an agent runs as inside: the checkout's owner; never in root's group."""
    return AGENT if owner.uid == AGENT.uid else Owner(owner.uid, owner.gid or owner.uid)


class Bind(Struct, frozen=True):
    """A path of this machine, and where it appears in a container."""

    source: Path
    place: Path
    read_only: bool = False

    @property
    def option(self) -> str:
        """The mount as docker reads it."""
        fields = ["type=bind", f"source={self.source}", f"destination={self.place}"]
        return "--mount=" + ",".join(_field(field) for field in (*fields, *["readonly"] * self.read_only))


def words(options: Sequence[str | Bind]) -> tuple[str, ...]:
    """``options`` as docker reads them."""
    return tuple(option.option if isinstance(option, Bind) else option for option in options)


def run_options(
    inside: Inside, checkout: Checkout, agent: Owner, limits: ResourceLimits
) -> tuple[str | Bind, ...]:
    """The options of `docker run` for a container in which programs see ``inside`` and ``checkout``.

    Raises SandboxUnavailableError if the sandbox cannot enforce the policy.
    """
    _refuse(inside, checkout, agent)
    size = f"{limits.memory_bytes // 2**20}m" if limits.memory_bytes else ""
    return (
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        *((f"--pids-limit={limits.processes}",) if limits.processes else ()),
        *((f"--cpus={limits.cpus:g}",) if limits.cpus else ()),
        *((f"--memory={size}",) if size else ()),
        f"--user={agent.uid}:{agent.gid}",
        f"--workdir={WORKSPACE}",
        f"--network={'host' if inside.network == 'open' else 'none'}",
        *((f"--ulimit=fsize={limits.file_bytes}",) if limits.file_bytes else ()),
        "--ulimit=core=0",
        *((f"--memory-swap={size}",) if size else ()),  # else docker allows the same amount again as swap
        "--log-driver=none",  # otherwise it would be a file without a size limit
        # Otherwise docker shows the name servers of this machine's network.
        *(() if inside.network == "open" else ("--dns=127.0.0.1", "--dns-search=.")),
        *(
            [Bind(inside.network.path, Path(INSIDE), read_only=True)]
            if isinstance(inside.network, ProxySocket)
            else []
        ),
        "--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777,size=256m",
        *_home(inside, checkout, agent),
        *_checkout(inside, checkout, checkout.root, agent),
        *_checkout(inside, checkout, WORKSPACE, agent),
    )


def exec_argv(
    client: tuple[str, ...],
    argv: tuple[str, ...],
    env: Mapping[str, str],
    checkout: Checkout,
    *,
    terminal: bool,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command that runs ``argv`` in the container that PLACE stands for, and the client's own environment.

    Values are passed in the client's environment, since everybody can read a process's arguments.
    """
    named: list[str] = ["--env", "HOSTNAME"]  # docker's own, unset
    for name, value in env.items():
        named += ["--env", f"{name}={value}" if name.startswith(CLIENTS) else name]
    options = ("--interactive", *(("--tty",) if terminal else ()), "--workdir", str(checkout.root))
    own = {name: value for name, value in env.items() if not name.startswith(CLIENTS)}
    return (*client, "exec", *options, *named, PLACE, *argv), own


def _refuse(inside: Inside, checkout: Checkout, agent: Owner) -> None:
    if agent.is_root:
        raise SandboxUnavailableError(ROOTS_OWN.format(repo=checkout.root))
    if checkout.root == WORKSPACE:
        raise SandboxUnavailableError(
            f"{WORKSPACE} is where containers show a repository: move this one elsewhere"
        )
    refuse_too_wide(inside, checkout, (*SYSTEM_ROOTS, WORKSPACE))
    for path in (inside.home, checkout.root):
        if ":" in str(path):
            raise SandboxUnavailableError(f"docker cannot mount {path}: its name contains a colon")


def _home(inside: Inside, checkout: Checkout, agent: Owner) -> list[str | Bind]:
    owner = f"mode=0700,uid={agent.uid},gid={agent.gid},size=64m"
    options: list[str | Bind] = [f"--tmpfs={inside.home}:rw,exec,nosuid,nodev,{owner}"]
    shown: set[Path] = set()
    for path, real in inside.readable:
        if area_of(path, IMAGES_OWN) and area_of(real, IMAGES_OWN):
            continue
        # Mount both a link and its target: a container has only the links of its image.
        for place in (real, path):
            if place not in shown and not place.is_relative_to(checkout.root):
                shown.add(place)
                options.append(Bind(real, place, read_only=True))
    return options + [Bind(path, path) for path in inside.home_paths]


def _checkout(inside: Inside, checkout: Checkout, place: Path, agent: Owner) -> list[str | Bind]:
    """The mounts that show ``checkout`` at ``place``, with its pinned and fixed paths."""
    hidden = [path for path in inside.hidden if path.is_relative_to(checkout.root)]
    private = [checkout.private] if checkout.private else []
    options: list[str | Bind] = [Bind(checkout.root, place)]
    options += [
        Bind(path, to) for path, to in _moved((*checkout.pinned, *checkout.ways), checkout.root, place)
    ]
    read_only = (*checkout.closed, *checkout.fixed)  # docker mounts deeper paths later
    options += [Bind(path, to, read_only=True) for path, to in _moved(read_only, checkout.root, place)]
    options += [_empty(to, agent) for _, to in _moved(hidden, checkout.root, place)]
    options += [
        _empty(to, agent, writable=checkout.index is not None)
        for _, to in _moved(private, checkout.root, place)
    ]
    options += [Bind(path, to) for path, to in _moved(checkout.shared, checkout.root, place)]
    nothing = Path("/dev/null")
    options += [Bind(nothing, to, read_only=True) for _, to in _moved(checkout.sockets, checkout.root, place)]
    return options


def _moved(paths: Sequence[Path], root: Path, place: Path) -> list[tuple[Path, Path]]:
    """Each path and where it appears; what is outside ``root`` (a worktree's git directory) appears only once."""
    below = [(path, place / path.relative_to(root)) for path in paths if path.is_relative_to(root)]
    beside = [(path, path) for path in paths if not path.is_relative_to(root)] if place == root else []
    return beside + below


def _field(text: str) -> str:
    """One field of the comma-separated value that docker reads (RFC 4180)."""
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\n\r') else text


def _empty(path: Path, agent: Owner, *, writable: bool = False) -> str:
    # The daemon copies the mode of the directory below, whatever we ask for, so the user who must enter it owns it.
    owner = f"mode=0755,uid={agent.uid},gid={agent.gid}"
    if writable:
        return f"--tmpfs={path}:rw,nosuid,nodev,{owner},size=64m"
    return f"--tmpfs={path}:ro,nosuid,nodev,noexec,{owner},size=4k"


# The daemon takes paths and follows links in them: between our check and its mount, somebody may have replaced one. So
# the mounts are compared with what was checked before anything starts in the container.

TMPFS = "--tmpfs="
# For `docker exec`: every image with a shell has these commands. The places follow as arguments. The first process is a
# shell for a moment; if it stays readable, this prints nothing.
ASK = """
for i in 1 2 3 4 5 6 7 8 9; do [ -r /proc/1/environ ] || break; sleep 0.3; done
[ -r /proc/1/environ ] || { cat /proc/self/mountinfo && echo && stat -c "%d %i" -- "$@"; }
"""
OUTDATED = f"the image {RUNNER} is from an older version: run `codebutler sandbox build` again"
_OCTAL = re.compile(r"\\([0-7]{3})")


class ExpectedMount(Struct, frozen=True):
    """One expected mount: ``identity`` is (device, inode) of the mounted path; None = an empty file system of its
    own."""

    place: Path
    read_only: bool
    identity: tuple[int, int] | None


def look(options: Sequence[str | Bind]) -> tuple[ExpectedMount, ...]:
    """The mounts that these `docker run` options should produce, as the paths are now.

    Raises SandboxUnavailableError if one is missing or goes through a link.
    """
    return tuple(
        ExpectedMount(option.place, option.read_only, _identity(option.source))
        if isinstance(option, Bind)
        else _tmpfs(option)
        for option in options
        if isinstance(option, Bind) or option.startswith(TMPFS)
    )


def question(wanted: Sequence[ExpectedMount]) -> tuple[str, ...]:
    """The command to run in the container; ``mismatch`` reads its output. Pure."""
    return ("/bin/sh", "-c", ASK, "sh", *(str(one.place) for one in wanted if one.identity))


def mismatch(wanted: Sequence[ExpectedMount], answer: str, *, identities: bool) -> str:
    """One line about the first mount that is not as expected; "" if all are. Pure.

    ``identities``: whether the container runs on our kernel, so that device and inode numbers can be compared.
    """
    if not answer:  # a program could write into the first process's memory and so outlive its run
        return OUTDATED
    table, _, seen = answer.partition("\n\n")
    found = _table(table)
    shown = iter(seen.splitlines())
    for one in wanted:
        options, kind = found.get(str(one.place), ("", ""))
        if not kind or (one.read_only and "ro" not in options.split(",")):
            return f"{one.place} is not protected in the container"
        if one.identity is None:
            if kind != "tmpfs":
                return f"{one.place} is not hidden in the container"
        elif next(shown, "") != f"{one.identity[0]} {one.identity[1]}" and identities:
            return f"{one.place} is different in the container"
    return ""


def _table(text: str) -> dict[str, tuple[str, str]]:
    """Mount point -> (options, file system) of the topmost mount there: proc_pid_mountinfo(5)."""
    table = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 5 and after:
            # Space, tab, newline and backslash are octal escapes.
            place = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
            table[place] = (fields[5], after.split(" ")[0])
    return table


def _identity(source: Path) -> tuple[int, int]:
    found = status_without_links(Path("/"), source)
    return found.st_dev, found.st_ino


def _tmpfs(option: str) -> ExpectedMount:
    place, _, settings = option.removeprefix(TMPFS).rpartition(":")
    return ExpectedMount(Path(place), "ro" in settings.split(","), None)
