"""macOS: processes through ps(1) and lsof(8); the service: a LaunchAgent (launchd.plist(5), launchctl(1)). Never run on
a Mac: see ``UNTRIED``."""

from __future__ import annotations

import errno
import fcntl
import os
import plistlib
import re
import socket
import struct
import subprocess
import tempfile
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from codebutler.domain.errors import CodeButlerError
from codebutler.platform.system import (
    ProcessEntry,
    ProcessUse,
    Run,
    SandboxName,
    ServiceManager,
    ServiceReport,
    ServiceSpec,
    Untried,
)

RUN_S = 5.0
PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
PS = ("ps", "-axo", "pid=,ppid=,stat=,rss=,tty=,lstart=,comm=")
LSTART_WORDS = 5
NO_TERMINAL = ("?", "??", "-")
SOL_LOCAL, LOCAL_PEERCRED = 0, 1
PEER = struct.Struct("=IIh2x16I")
"""struct xucred of <sys/ucred.h>: version, user, number of groups, groups."""
PEER_VERSION = 0
F_FULLFSYNC = 51
UNTRIED = (
    Untried(
        "the sandbox (seatbelt)",
        "its profile, against the expected text and a table of decisions; it also tests itself before use",
    ),
    Untried(
        "the service (LaunchAgent)", "its property list and the calls to launchctl, with recorded answers"
    ),
    Untried("process lists (ps, lsof)", "ps on Linux, and recorded output from macOS"),
    Untried("the user at the control socket (LOCAL_PEERCRED)", "the decoding of the answer"),
    Untried("syncing to disk (F_FULLFSYNC)", "the fallback for file systems without it"),
    Untried("Claude Code's login in the keychain", "the call to `security`, with scripted answers"),
    Untried("docker", "docker on Linux; on macOS, its daemon runs in a virtual machine"),
)
THROTTLE_S = 10
_PID = re.compile(r"^\s*pid = (\d+)$", re.MULTILINE)
_STATE = re.compile(r"^\s*state = (.+)$", re.MULTILINE)
_EXIT = re.compile(r"^\s*last exit code = (.+)$", re.MULTILINE)


class ListedProcess:
    """A line of the output of PS."""

    def __init__(self, words: Sequence[str]) -> None:
        self.pid, self.parent, self.zombie = int(words[0]), int(words[1]), words[2].startswith("Z")
        self.memory_bytes, self.terminal = int(words[3]) * 1024, words[4] not in NO_TERMINAL
        self.started = "".join(
            each for word in words[5 : 5 + LSTART_WORDS] for each in word if each.isalnum()
        )
        self.program = Path(words[5 + LSTART_WORDS]).name

    @property
    def entry(self) -> ProcessEntry:
        return ProcessEntry(self.parent, self.started)


def rows(listing: str) -> dict[int, ListedProcess]:
    """The processes in the output of PS, without zombies. Pure."""
    split = (line.split(None, 5 + LSTART_WORDS) for line in listing.splitlines())
    found = (ListedProcess(words) for words in split if len(words) == 6 + LSTART_WORDS and words[0].isdigit())
    return {row.pid: row for row in found if not row.zombie}


def working_directories(listing: str) -> list[Path]:
    """The working directories in the output of ``lsof -d cwd -Fn``. Pure."""
    return [Path(line[1:]) for line in listing.splitlines() if line.startswith("n/")]


def listed_access(listing: str) -> bool:
    """Whether `ls -lde` shows an access control list. Pure."""
    return listing.partition(" ")[0].endswith("+")


class MacOS:
    """See ``OperatingSystem``."""

    name = "macOS"
    # <sys/un.h>: sun_path and its NUL.
    socket_path_bytes = 103
    sandboxes: tuple[SandboxName, ...] = ("seatbelt", "docker")
    native_containers = False
    opens_pages = True
    restores_signals: tuple[str, ...] = ()
    untried: tuple[Untried, ...] = UNTRIED

    def __init__(self, path: str = PATH) -> None:
        """``path``: where it finds the programs that it runs."""
        self._path = path

    def seen(self, pids: Collection[int] | None = None) -> dict[int, ProcessEntry]:
        table = self._listed() if pids is None or pids else {}
        return {pid: row.entry for pid, row in table.items() if pids is None or pid in pids}

    def children(self, pid: int) -> list[int]:
        return [row.pid for row in self._listed().values() if row.parent == pid]

    def use_of(self, pids: Collection[int]) -> dict[int, ProcessUse]:
        """The memory is the resident set: shared memory counts in each process."""
        table = self._listed() if pids else {}
        return {pid: ProcessUse(table[pid].memory_bytes, _below(table, pid)) for pid in pids if pid in table}

    def carrying(self, variable: str) -> dict[int, tuple[str, str]]:
        """Nothing: the system does not show environments."""
        return {}

    def at_terminal(self, program: str) -> list[Path]:
        found = [row.pid for row in self._listed().values() if row.terminal and row.program == program]
        if not found:
            return []
        return working_directories(
            self._told("lsof", "-a", "-d", "cwd", "-Fn", "-p", ",".join(map(str, found)))
        )

    def _listed(self) -> dict[int, ListedProcess]:
        return rows(self._told(*PS))

    def _told(self, *argv: str) -> str:
        """The program's output; "" if it cannot be run."""
        env = {"PATH": self._path, "LC_ALL": "C", "HOME": str(Path.home())}
        with suppress(OSError, subprocess.TimeoutExpired):
            return subprocess.run(
                argv, capture_output=True, text=True, errors="replace", timeout=RUN_S, check=False, env=env
            ).stdout
        return ""

    def pid_namespace(self) -> int:
        return 0

    def handle(self, pid: int) -> int | None:
        """None: macOS has no such descriptors."""
        return None

    def send(self, handle: int, number: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def sync(self, descriptor: int) -> None:
        """fcntl(2): fsync alone leaves data in the drive's cache."""
        try:
            fcntl.fcntl(descriptor, F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
                raise
            os.fsync(descriptor)  # this file system offers nothing better

    def has_access_list(self, directory: Path) -> bool:
        return listed_access(self._told("ls", "-lde", str(directory)))

    def name_watch(self) -> NoReturn:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def open_beneath(self, directory: int, relative: str, flags: int) -> int:
        raise NotImplementedError

    def unwritable(self, content: bytes, owner: object) -> str:
        """A private file: programs in a sandbox cannot see it."""
        fd, path = tempfile.mkstemp(prefix="codebutler-")
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        weakref.finalize(owner, os.unlink, path)
        return path

    def peer_uid(self, sock: socket.socket) -> int:
        """unix(4), LOCAL_PEERCRED."""
        version, uid, *_ = PEER.unpack(sock.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, PEER.size))
        if version != PEER_VERSION:
            raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
        return int(uid)

    def manager(self, service: ServiceSpec, env: Mapping[str, str], run: Run) -> tuple[ServiceManager, str]:
        return Launchd(service, env, run), agent_plist(service).decode()

    def keychain_has(self, service: str) -> bool:
        """security(1) asks nobody unless the password itself is wanted (-w, -g)."""
        return bool(self._told("security", "find-generic-password", "-s", service))


def _below(table: Mapping[int, ListedProcess], root: int) -> int:
    return sum(1 for _ in _descendants(table, root))


def _descendants(table: Mapping[int, ListedProcess], root: int) -> Iterator[int]:
    level = {root}
    while level := {row.pid for row in table.values() if row.parent in level and row.pid != root}:
        yield from level


def label(service: ServiceSpec) -> str:
    """The agent's name."""
    return f"com.{service.name.replace('codebutler-', 'codebutler.')}"


def agent_plist(service: ServiceSpec) -> bytes:
    """The property list. Restarted unless it exited successfully."""
    log = str(service.home / "logs" / "service.log")
    return plistlib.dumps(
        {
            "Label": label(service),
            "ProgramArguments": list(service.argv),
            "WorkingDirectory": str(service.home),
            "EnvironmentVariables": dict(service.environment),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": THROTTLE_S,
            "ExitTimeOut": service.stop_s,
            "ProcessType": "Interactive",
            "Umask": 0o077,
            # launchd's own soft limit of 256 open files is low for workers and agents, too.
            "SoftResourceLimits": {"NumberOfFiles": 1024},
            "StandardOutPath": log,
            "StandardErrorPath": log,
        }
    )


class Launchd:
    """The user's launchd. A second install replaces the agent and restarts it."""

    def __init__(self, service: ServiceSpec, env: Mapping[str, str], run: Run) -> None:
        self._service = service
        self._run = run
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{label(service)}"
        home = Path(env.get("HOME") or Path.home())
        self.file = home / "Library" / "LaunchAgents" / f"{label(service)}.plist"

    def install(self) -> None:
        """Write, load and start it; does not wait for the start. Raises CodeButlerError."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(agent_plist(self._service))
        self._launchctl("bootout", self._target, may_fail=True)
        self._launchctl("enable", self._target)
        self._launchctl("bootstrap", self._domain, str(self.file))

    def uninstall(self) -> bool:
        """Stop and remove it; False if it was not installed. Raises CodeButlerError."""
        if not self.file.exists():
            return False
        self._launchctl("bootout", self._target, may_fail=True)
        self.file.unlink(missing_ok=True)
        return True

    def report(self) -> ServiceReport:
        """Its current state. Raises CodeButlerError."""
        if not self.file.exists():
            return ServiceReport("absent")
        done = self._run(("launchctl", "print", self._target))
        if done.code:
            return ServiceReport("stopped", 0, "not loaded")
        pid, state, code = (pattern.search(done.out) for pattern in (_PID, _STATE, _EXIT))
        if pid is not None:
            return ServiceReport("running", int(pid[1]))
        if code is not None and code[1] not in ("0", "(never exited)"):
            return ServiceReport("failed", 0, f"exit code {code[1]}")
        return ServiceReport("starting" if state is not None and "spawn" in state[1] else "stopped")

    def advice(self) -> str:
        """A LaunchAgent runs while its user is logged in; programs that need a keychain have no alternative."""
        return "It starts when you log in."

    def _launchctl(self, *arguments: str, may_fail: bool = False) -> str:
        done = self._run(("launchctl", *arguments))
        if done.code and not may_fail:
            raise CodeButlerError(f"`launchctl {' '.join(arguments)}` failed: {done.err or done.out}")
        return done.out
