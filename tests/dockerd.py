"""A real docker daemon for tests, and the runner's image, without a registry or a network.

The image's root is made from the packages that this machine has itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from codebutler.config.programs import RUNNER
from codebutler_worker.sandbox.containers import OWNER
from tests.programs import require

START_S = 60.0
LONGEST_S = 1800
# What a root file system needs to be one, and what agents' tools are made of.
PACKAGES = (
    "base-files", "bash", "ca-certificates", "coreutils", "dash", "diffutils", "findutils", "git", "grep", "libpam0g",
    "mawk", "procps", "python3-minimal", "libpython3-stdlib", "sed", "util-linux",
)  # fmt: skip
LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
# Large, and used by none of our tests.
LEFT_OUT = (
    "/share/doc/", "/share/man/", "/share/locale/", "/share/info/", "/share/i18n/", "/share/perl/", "/perl/", "/gconv/",
    "/idlelib/", "/lib2to3/", "/pydoc_data/", "/git-core/git-http", "/git-core/git-imap", "/git-core/git-remote",
    "/bash-completion/", "/share/bug/", "/share/lintian/", "/share/zoneinfo/", "/scalar", "/git-shell", "/__pycache__/",
)  # fmt: skip


@contextmanager
def shared_dockerd(directory: Path) -> Iterator[str]:
    """A daemon with the runner's image, one for all the test processes of a run; gives its address.

    Who comes first starts it, who goes last ends it. ``directory`` is the same for all of them.
    """
    directory.mkdir(exist_ok=True)
    socket = directory / "docker.sock"
    users = directory / "users"
    users.mkdir(exist_ok=True)
    mine = users / str(os.getpid())
    with locked(directory):
        if not any(users.iterdir()):
            start(directory, socket)
        mine.touch()
    try:
        yield f"unix://{socket}"
    finally:
        with locked(directory):
            mine.unlink()
            if not any(users.iterdir()):
                stop(directory, f"unix://{socket}")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def start(directory: Path, socket: Path) -> None:
    """The daemon makes no network and no firewall rule; `timeout` ends it if nobody does."""
    log = directory / "dockerd.log"
    command = [
        "setsid", "--fork", "timeout", "--signal=TERM", str(LONGEST_S), str(require("dockerd")),
        "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
        "--storage-driver=overlay2", f"--data-root={directory / 'data'}", f"--exec-root={directory / 'exec'}",
        f"--pidfile={directory / 'dockerd.pid'}", f"--host=unix://{socket}",
    ]  # fmt: skip
    with log.open("ab") as output:
        subprocess.run(command, stdout=output, stderr=output, check=True)
    host = f"unix://{socket}"
    deadline = time.monotonic() + START_S
    while not docker(host, "version", "--format", "{{.Server.Version}}", check=False):
        if time.monotonic() > deadline:
            pytest.fail(f"dockerd does not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
    if not docker(host, "image", "ls", "-q", RUNNER):
        root = minimal_root(directory / "root.tar")
        command = [
            sys.executable,
            "-m",
            "codebutler",
            "sandbox",
            "build",
            "--root",
            str(root),
            "--host",
            host,
        ]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
        root.unlink()


def stop(directory: Path, host: str) -> None:
    if left := docker(host, "ps", "-aq", check=False).split():
        docker(host, "rm", "-f", *left, check=False)
    pid = int((directory / "dockerd.pid").read_text())
    group = os.getpgid(pid)
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + START_S
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if Path(place := line.split()[1]).is_relative_to(directory):
            subprocess.run(["umount", "--lazy", place], check=True)
    for name in ("data", "exec"):
        shutil.rmtree(directory / name)


def docker(host: str, *words: str, check: bool = True) -> str:
    """What a command of the client printed."""
    done = subprocess.run(
        [str(require("docker")), "--host", host, *words], check=False, capture_output=True, text=True
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def made_by(host: str, pid: int) -> list[str]:
    """The running containers of process ``pid``: other test processes may have theirs on the same daemon."""
    listing = docker(
        host, "ps", "--no-trunc", "--format", f'{{{{.ID}}}} {{{{.Label "{OWNER}"}}}}'
    ).splitlines()
    rows = [row for line in listing if len(row := line.split()) == 2]
    return [container for container, owner in rows if owner.split("-")[2] == str(pid)]


def minimal_root(target: Path, packages: Sequence[str] = PACKAGES) -> Path:
    """A root file system as a tar file: packages and what they depend on, as they lie here (Debian, Ubuntu)."""
    listing = subprocess.run(
        ["dpkg-query", "-L", *closure(packages)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    wanted = (line for line in listing if line.startswith("/") and not any(part in line for part in LEFT_OUT))
    paths = {Path(line) for line in wanted}
    added = {Path("/")}
    with tarfile.open(target, "w") as tar:
        for link in (Path(path) for path in LINKED):
            if link.is_symlink():
                tar.add(link, arcname=str(link)[1:], recursive=False)
                added.add(link)
        for path in sorted(paths | {Path("/usr/bin/awk"), Path("/etc/alternatives/awk")}):
            real = path.parent.resolve() / path.name
            if path not in added and real not in added and (real.exists() or real.is_symlink()):
                added.add(real)
                tar.add(real, arcname=str(real)[1:], recursive=False)
    return target


def closure(packages: Sequence[str]) -> list[str]:
    """These and all they depend on, of what is installed."""
    listing = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\t${Depends},${Pre-Depends}\n"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    depends = dict(line.split("\t", 1) for line in listing)
    found: set[str] = set()
    asked = list(packages)
    while asked:
        package = asked.pop()
        if package in depends and package not in found:
            found.add(package)
            asked += [
                one.split("|")[0].split("(")[0].split(":")[0].strip() for one in depends[package].split(",")
            ]
    return sorted(found)
