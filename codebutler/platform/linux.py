"""Linux: most of it is read from /proc. Changes of names in directories: inotify(7). The service: a systemd user unit.

Sources for the unit: systemd.service(5), systemd.exec(5), systemd.syntax(7) for the quoting. systemd's own sandboxing
(PrivateTmp, ProtectSystem, ProtectHome) is left out: user units ignore it silently, and the agents have their
sandbox.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import signal
import socket
import struct
import weakref
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cached_property
from io import FileIO
from pathlib import Path

from codebutler.domain.errors import EXIT_CONFIGURATION, CodeButlerError
from codebutler.platform.system import (
    NameEvent,
    ProcessEntry,
    ProcessUse,
    Run,
    SandboxName,
    ServiceManager,
    ServiceReport,
    ServiceSpec,
    Untried,
)

PROC = Path("/proc")
PEER = struct.Struct("3i")
ACCESS_LIST = "system.posix_acl_access"
SYS_OPENAT2 = 437  # the same on every architecture
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
IN_MOVED, IN_CREATE, IN_DELETE = 0x40 | 0x80, 0x100, 0x200
IN_OVERFLOW, IN_IGNORED, IN_ONLYDIR, IN_DONT_FOLLOW = 0x4000, 0x8000, 0x1000000, 0x2000000
WATCHED = IN_MOVED | IN_CREATE | IN_DELETE | IN_ONLYDIR | IN_DONT_FOLLOW
HEAD = struct.Struct("iIII")
READ_BYTES = 64 * 2**10
WATCHDOG_S = 60
RESTART_S = 2
# After this many starts within this time systemd gives up: a restart does not help.
BURST, BURST_S = 10, 300
NO_SESSION = (
    "your service manager cannot be reached: log in as this user (not through su or sudo), "
    "or run `loginctl enable-linger` once and log in again"
)
_STATE, _PARENT, _TTY, _START = 0, 1, 4, 19
"""Fields of proc_pid_stat(5) after the name of the program."""


class NameWatch:
    """Its ``fd`` is readable when there are events; whoever made it closes that. Raises OSError, also if this user's
    instances are used up."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watches: dict[int, Path] = {}
        if self.fd < 0:
            raise OSError(code := ctypes.get_errno(), os.strerror(code))

    def watch(self, directory: Path) -> None:
        """Watch the directory from now on; a second call does nothing. Raises OSError."""
        if directory not in self._watches.values():
            number = self._libc.inotify_add_watch(self.fd, os.fsencode(directory), ctypes.c_uint32(WATCHED))
            if number < 0:
                raise OSError(code := ctypes.get_errno(), os.strerror(code))
            self._watches[number] = directory

    def read(self) -> list[NameEvent]:
        """What has happened since the last call."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return []
        found = []
        for number, mask, name in events(data):
            directory, whole = self._watches.get(number), bool(mask & IN_IGNORED)
            if whole:
                self._watches.pop(number, None)
            found.append(
                NameEvent(
                    directory, name, bool(mask & (IN_DELETE | IN_IGNORED)), whole, bool(mask & IN_OVERFLOW)
                )
            )
        return found


def events(data: bytes) -> list[tuple[int, int, str]]:
    """(watch, mask, name) of each event that was read. Pure."""
    found, at = [], 0
    while at + HEAD.size <= len(data):
        watch, mask, _, length = HEAD.unpack_from(data, at)
        name = data[at + HEAD.size : at + HEAD.size + length].rstrip(b"\0")
        found.append((watch, mask, os.fsdecode(name)))
        at += HEAD.size + length
    return found


class Linux:
    """See ``OperatingSystem``."""

    name = "Linux"
    # unix(7): sun_path and its NUL.
    socket_path_bytes = 107
    sandboxes: tuple[SandboxName, ...] = ("bwrap", "docker")
    native_containers = True
    name_watch = NameWatch
    opens_pages = False
    restores_signals: tuple[str, ...] = ("/usr/bin/env", "--default-signal=INT,QUIT,TSTP")
    untried: tuple[Untried, ...] = ()

    def seen(self, pids: Collection[int] | None = None) -> dict[int, ProcessEntry]:
        """proc_pid_stat(5), fields 4 and 22: started in ticks since boot."""
        found: dict[int, ProcessEntry] = {}
        # Without Path, which is slower: this reads every process of the machine whenever a program ends.
        for pid in os.listdir(PROC) if pids is None else map(str, pids):  # noqa: PTH208
            if pid.isdigit():
                with suppress(OSError), FileIO(f"{PROC}/{pid}/stat") as file:
                    fields = file.readall().rpartition(b")")[2].decode(errors="replace").split()
                    if fields[_STATE] != "Z":
                        found[int(pid)] = ProcessEntry(int(fields[_PARENT]), fields[_START])
        return found

    def children(self, pid: int) -> list[int]:
        """proc_pid_task(5), children."""
        with suppress(OSError):
            files = list((PROC / str(pid) / "task").glob("*/children"))
            return [int(child) for file in files for child in file.read_text().split()]
        return []

    def use_of(self, pids: Collection[int]) -> dict[int, ProcessUse]:
        """The memory is the proportional set size (proc_pid_smaps(5), smaps_rollup)."""
        return {pid: ProcessUse(_pss_bytes(pid), self._below(pid)) for pid in self.seen(pids)}

    def _below(self, root: int) -> int:
        count, ahead = 0, [root]
        while ahead:
            found = self.seen(self.children(ahead.pop()))
            count += len(found)
            ahead += found
        return count

    def carrying(self, variable: str) -> dict[int, tuple[str, str]]:
        """proc_pid_environ(5): of this user's processes."""
        found: dict[int, tuple[str, str]] = {}
        for pid in map(int, filter(str.isdigit, os.listdir(PROC))):  # noqa: PTH208
            # Read twice: if the pid was reused in between, the start times differ.
            if (
                _variable(pid, variable)
                and (entries := self.seen([pid]))
                and (value := _variable(pid, variable))
            ):
                found[pid] = (entries[pid].started, value)
        return found

    def at_terminal(self, program: str) -> list[Path]:
        found = []
        for process in PROC.glob("[0-9]*"):
            with suppress(OSError):
                fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if (process / "comm").read_text().strip() == program and fields[_TTY] != "0":
                    found.append((process / "cwd").readlink())
        return found

    def pid_namespace(self) -> int:
        space = PROC / "self" / "ns" / "pid"
        return space.stat().st_ino if space.exists() else 0

    def handle(self, pid: int) -> int | None:
        """pidfd_open(2)."""
        try:
            return os.pidfd_open(pid)
        except OSError:
            return None

    def send(self, handle: int, number: int) -> None:
        signal.pidfd_send_signal(handle, number)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def has_access_list(self, directory: Path) -> bool:
        with suppress(OSError):
            return ACCESS_LIST in os.listxattr(directory)
        return False

    def open_beneath(self, directory: int, relative: str, flags: int) -> int:
        """openat2(2)."""
        how = struct.pack(
            "QQQ", flags | os.O_CLOEXEC, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
        )
        descriptor = self._libc.syscall(
            ctypes.c_long(SYS_OPENAT2),
            ctypes.c_int(directory),
            ctypes.c_char_p(os.fsencode(relative)),
            ctypes.c_char_p(how),
            ctypes.c_size_t(len(how)),
        )
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        # A container's seccomp filter answers EPERM for a call it does not know.
        if code in (errno.ENOSYS, errno.EPERM):
            raise NotImplementedError
        raise OSError(code, os.strerror(code), relative)

    @cached_property
    def _libc(self) -> ctypes.CDLL:
        """Loaded once: each load creates a new class, and a turn opens a hundred paths."""
        return ctypes.CDLL(None, use_errno=True)

    def unwritable(self, content: bytes, owner: object) -> str:
        """A sealed memory file: memfd_create(2)."""
        fd = os.memfd_create("codebutler", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        weakref.finalize(owner, os.close, fd)
        os.write(fd, content)
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return f"/proc/{os.getpid()}/fd/{fd}"

    def peer_uid(self, sock: socket.socket) -> int:
        """unix(7), SO_PEERCRED."""
        _, uid, _ = PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        return int(uid)

    def manager(self, service: ServiceSpec, env: Mapping[str, str], run: Run) -> tuple[ServiceManager, str]:
        if not shutil.which("systemctl", path=env.get("PATH")):
            raise CodeButlerError(
                "systemd is not available: keep `codebutler supervise` running by other means"
            )
        return Systemd(service, env, run), unit_text(service)

    def keychain_has(self, service: str) -> bool:
        """Never: on Linux programs keep their logins in files."""
        return False


def _variable(pid: int, name: str) -> str:
    with suppress(OSError), FileIO(f"{PROC}/{pid}/environ") as file:
        value = (b"\0" + file.readall()).partition(f"\0{name}=".encode())[2].partition(b"\0")[0]
        return value.decode(errors="replace")
    return ""


def _pss_bytes(pid: int) -> int | None:
    with suppress(OSError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text(errors="replace").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return None


def unit_text(service: ServiceSpec) -> str:
    """The unit file."""
    environment = "".join(
        f"Environment={quoted(f'{name}={value}')}\n" for name, value in service.environment.items()
    )
    privileges = "NoNewPrivileges=yes\nRestrictRealtime=yes\n" if service.locked_privileges else ""
    return f"""\
# Written by `codebutler install`, removed by `codebutler uninstall`.
[Unit]
Description=CodeButler: coding agents in your chats
StartLimitIntervalSec={BURST_S}
StartLimitBurst={BURST}

[Service]
Type=notify
NotifyAccess=main
ExecStart={" ".join(quoted(word, command=True) for word in service.argv)}
WorkingDirectory={_escaped(str(service.home))}
{environment}Restart=on-failure
RestartSec={RESTART_S}
RestartPreventExitStatus={EXIT_CONFIGURATION}
WatchdogSec={WATCHDOG_S}
TimeoutStopSec={service.stop_s}
# The supervisor ends its workers in order; what is left then is killed.
KillMode=mixed
# An agent that eats the memory is killed alone, and its turn says so.
OOMPolicy=continue
# The supervisor makes a control group for each agent.
Delegate=yes
UMask=0077
# The supervisor raises its own soft limit; workers and agents keep the usual one.
LimitNOFILE=1024:524288
LimitCORE=0
{privileges}
[Install]
WantedBy=default.target
"""


def quoted(text: str, *, command: bool = False) -> str:
    """A word as systemd reads it back, with specifiers, variables and escapes quoted."""
    text = _escaped(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{text.replace("$", "$$") if command else text}"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%").replace("\n", " ")


def read_report(fields: Mapping[str, str]) -> ServiceReport:
    """The meaning of the unit's properties. A waiting job is a start: no other is ever left waiting."""
    pid = int(fields.get("MainPID") or 0)
    active = fields.get("ActiveState", "")
    if active == "failed":
        return ServiceReport(
            "failed", pid, f"{fields.get('Result', '')}, exit code {fields.get('ExecMainStatus', '')}"
        )
    if fields.get("Job", "0") not in ("", "0") or active == "activating":
        return ServiceReport("starting", pid, fields.get("StatusText", ""))
    return ServiceReport("running" if active == "active" else "stopped", pid, fields.get("StatusText", ""))


class Systemd:
    """The user's systemd. A second install replaces the unit and restarts it."""

    def __init__(self, service: ServiceSpec, env: Mapping[str, str], run: Run) -> None:
        self._service = service
        self._run = run
        self._user = env.get("USER") or str(os.getuid())
        base = env.get("XDG_CONFIG_HOME") or f"{env.get('HOME') or Path.home()}/.config"
        self.file = Path(base) / "systemd" / "user" / f"{service.name}.service"

    def install(self) -> None:
        """Write, enable and start it; does not wait for the start. Raises CodeButlerError."""
        # Before anything is written: without a manager the file would do nothing.
        self._systemctl("show-environment")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(unit_text(self._service), encoding="utf-8")
        self._systemctl("daemon-reload")
        self._systemctl("enable", self.file.name)
        self._systemctl("reset-failed", self.file.name, may_fail=True)
        self._systemctl("restart", "--no-block", self.file.name)

    def uninstall(self) -> bool:
        """Stop and remove it; False if it was not installed. Raises CodeButlerError."""
        if not self.file.exists():
            return False
        self._systemctl("disable", "--now", self.file.name)
        self.file.unlink(missing_ok=True)
        self._systemctl("daemon-reload")
        return True

    def report(self) -> ServiceReport:
        """Its current state. Raises CodeButlerError."""
        if not self.file.exists():
            return ServiceReport("absent")
        names = "ActiveState,MainPID,StatusText,Result,ExecMainStatus,Job"
        shown = self._systemctl("show", self.file.name, "-p", names)
        return read_report(dict(line.partition("=")[::2] for line in shown.splitlines()))

    def advice(self) -> str:
        """What the user has to do for it to run without a login; "" if nothing."""
        lingering = Path("/var/lib/systemd/linger") / self._user
        if lingering.exists():
            return ""
        return "It starts when you log in; to start it at boot: `loginctl enable-linger`"

    def _systemctl(self, *arguments: str, may_fail: bool = False) -> str:
        done = self._run(("systemctl", "--user", *arguments))
        if done.code and not may_fail:
            if "bus" in done.err or "XDG_RUNTIME_DIR" in done.err:
                raise CodeButlerError(NO_SESSION)
            raise CodeButlerError(f"`systemctl --user {' '.join(arguments)}` failed: {done.err or done.out}")
        return done.out
