"""SeatbeltSandbox: macOS's own sandbox, through sandbox-exec(1). Its profile is tested as data but has never run on
macOS; it tests itself before anything starts."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.checkout import Checkout, inspect_checkout
from codebutler_worker.sandbox.port import (
    Launch,
    ProxySocket,
    Sandbox,
    SandboxPolicy,
    trial_directories,
    trial_failure,
)
from codebutler_worker.sandbox.system import Inside, MachineView, refuse_too_wide

# The sandbox as a profile for macOS's seatbelt (sandbox-exec(1)). Pure: takes everything that was looked up, returns a
# text.
#
# Everything not allowed here is denied, and the last matching rule wins: the order below is the policy. Unlike
# bubblewrap, it hides no processes, provides no private /tmp, and lets a program test whether a hidden file exists.
# Written after Apple's own profiles (/System/Library/Sandbox/Profiles); we have never run it on a Mac.

SYSTEM_ROOTS = tuple(
    map(
        Path,
        [
            "/System",
            "/Library/Apple",
            "/Library/Developer",
            "/Library/Frameworks",
            "/usr",
            "/bin",
            "/sbin",
            "/opt",
            "/nix",
            "/private/etc",
            "/private/var/db/timezone",
            "/private/var/db/dyld",
            "/private/var/select",
        ],
    )
)
"""Readable. Homes, other volumes, /private/tmp and the rest of /private/var are not visible."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/dtracehelper")
TERMINALS = ("/dev/tty", "/dev/ptmx")
# The services a program needs to start and to know its user and the time. No keychain, no window server, no events.
SERVICES = (
    "com.apple.bsd.dirhelper",
    "com.apple.logd",
    "com.apple.system.logger",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
)
# Name resolution and certificates.
NETWORK_SERVICES = (
    "com.apple.SystemConfiguration.configd",
    "com.apple.SystemConfiguration.DNSConfiguration",
    "com.apple.dnssd.service",
    "com.apple.trustd.agent",
)
BASE = (
    "(version 1)",
    "(deny default)",
    "(allow process-exec)",
    "(allow process-fork)",
    "(allow process-info* (target same-sandbox))",
    "(allow signal (target same-sandbox))",
    "(allow sysctl-read)",
    "(allow ipc-posix-sem)",
    "(allow file-map-executable)",
)
# Internet only, no Unix sockets: docker's and ssh-agent's would be a way out.
OPEN_NETWORK = (
    "(allow network-outbound (remote ip))",
    "(allow network-bind (local ip))",
    "(allow network-inbound (local ip))",
    '(allow network-outbound (literal "/private/var/run/mDNSResponder"))',
    "(allow system-socket)",
)


def seatbelt_profile(inside: Inside, checkout: Checkout, scratch: Path) -> str:
    """The profile for a program in ``checkout``; ``scratch`` is its directory for temporary files.

    Raises SandboxUnavailableError if the sandbox cannot enforce the policy.
    """
    if isinstance(inside.network, ProxySocket):
        raise SandboxUnavailableError(
            'seatbelt cannot limit the network to chosen hosts: set sandbox.network to "open" or "none"'
        )
    refuse_too_wide(inside, checkout, SYSTEM_ROOTS)
    rules = [
        *BASE,
        _services(SERVICES),
        *_system(inside),
        *_own(inside, checkout, scratch),
        *_checkout(inside, checkout),
        *_network(inside),
    ]
    return "\n".join(rules) + "\n"


def _system(inside: Inside) -> list[str]:
    terminals = TERMINALS if inside.own_terminal else ()
    return [
        '(allow file-read* (literal "/"))',
        *(f"(allow file-read* {_below(root)})" for root in SYSTEM_ROOTS),
        *(f"(allow file-read* file-write-data {_only(Path(path))})" for path in DEVICES),
        *(f"(allow file-read* file-write-data file-ioctl {_only(Path(path))})" for path in terminals),
        *(
            (
                "(allow pseudo-tty)",
                '(allow file-read* file-write-data file-ioctl (regex #"^/dev/ttys[0-9]+$"))',
            )
            if inside.own_terminal
            else ()
        ),
    ]


def _own(inside: Inside, checkout: Checkout, scratch: Path) -> list[str]:
    shown = [*inside.home_paths, *(real for _, real in inside.readable), checkout.root, scratch]
    return [
        # Following a path requires metadata access to its parent directories; none of them can be listed.
        *(f"(allow file-read-metadata {_only(path)})" for path in _above([*shown, *_links(inside)])),
        *(f"(allow file-read* {_below(real)})" for _, real in inside.readable),
        *(f"(allow file-read* {_only(path)})" for path in _links(inside)),
        *(f"(allow file-read* file-write* {_below(path)})" for path in (*inside.home_paths, scratch)),
    ]


def _checkout(inside: Inside, checkout: Checkout) -> list[str]:
    rules = [
        f"(allow file-read* file-write* {_below(checkout.root)})",
        f"(deny file-write-unlink {_only(checkout.root)})",
        # Renaming counts as unlinking.
        *(f"(deny file-write-unlink {_only(path)})" for path in checkout.pinned),
        *(f"(deny file-write* {_below(path)})" for path in checkout.fixed),
    ]
    if checkout.private:
        rules += [
            f"(deny file-read* file-write* {_below(checkout.private)})",
            f"(allow file-read-metadata {_only(checkout.private)})",
            *(f"(allow file-read* file-write* {_below(path)})" for path in checkout.shared),
            *(f"(deny file-write-unlink {_only(path)})" for path in checkout.shared),
        ]
    return [*rules, *(f"(deny file-read* file-write* {_below(path)})" for path in inside.hidden)]


def _network(inside: Inside) -> tuple[str, ...]:
    return (*OPEN_NETWORK, _services(NETWORK_SERVICES)) if inside.network == "open" else ()


def _services(names: Iterable[str]) -> str:
    return f"(allow mach-lookup {' '.join(f'(global-name {quoted(name)})' for name in names)})"


def _links(inside: Inside) -> list[Path]:
    """Names of readable paths that are links."""
    return [path for path, real in inside.readable if path != real]


def _above(paths: Iterable[Path]) -> list[Path]:
    """Every directory on the way to the paths, without the root; each once, parents first."""
    found = {parent for path in paths for parent in path.parents if parent != Path("/")}
    return sorted(found)


def _below(path: Path) -> str:
    return f"(subpath {quoted(str(path))})"


def _only(path: Path) -> str:
    return f"(literal {quoted(str(path))})"


def quoted(text: str) -> str:
    """As a string in the profile language. Raises SandboxUnavailableError for characters that none of our paths
    contain."""
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise SandboxUnavailableError(f"{text!r} has a control character in its name: rename it")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


PROGRAM = Path("/usr/bin/sandbox-exec")
UNTESTED = (
    "its profile has been tested as text only, never on macOS: docs/how-to/run-on-a-mac.md says what it keeps"
)
SELF_TEST = r"""
[ "$(id -u)" != 0 ] || { echo "is root inside"; exit 1; }
cat "$OUTSIDE" 2>/dev/null && { echo "reads files outside"; exit 1; }
(: > "$OUTSIDE") 2>/dev/null && { echo "writes files outside"; exit 1; }
(: > "$TMPDIR/self-test") || { echo "cannot write in its own directory for temporary files"; exit 1; }
echo written > here && cat here
"""


class SeatbeltSandbox(Sandbox):
    """Runs programs in macOS's seatbelt. ``hidden`` are directories that no agent may see, ``readable`` those outside
    the repository that every agent may read.

    Raises SandboxUnavailableError off macOS, and for root.
    """

    name = "seatbelt"

    def __init__(
        self,
        hidden: tuple[Path, ...] = (),
        program: Path = PROGRAM,
        uid: int | None = None,
        readable: tuple[Path, ...] = (),
    ) -> None:
        if not os.access(program, os.X_OK):
            raise SandboxUnavailableError(f"seatbelt is a part of macOS: there is no {program} here")
        if (os.geteuid() if uid is None else uid) == 0:
            raise SandboxUnavailableError(
                "seatbelt does not work as root: run CodeButler as an ordinary user"
            )
        self._program = program
        self._view = MachineView.of(hidden, readable)

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """Skips paths of ``policy`` that do not exist; refuses symbolic links."""
        checkout = inspect_checkout(policy.workdir, policy.home, filling=policy.filling)
        scratch = _scratch(checkout.root)
        inside = self._view.inside(argv, policy, checkout)
        profile = seatbelt_profile(inside, checkout, scratch)
        return Launch(
            argv=(str(self._program), "-p", profile, *argv),
            env={**inside.env, "TMPDIR": str(scratch)},
            cwd=policy.workdir,
        )

    async def self_test(self) -> None:
        """Start a shell inside that checks the sandbox."""
        with trial_directories() as directories:
            env = {"PATH": "/usr/bin:/bin", "OUTSIDE": str(directories.outside)}
            policy = SandboxPolicy(
                workdir=directories.workdir, home=directories.home, env=env, network="none"
            )
            why = await trial_failure(self.wrap(("/bin/sh", "-c", SELF_TEST), policy))
        if why:
            raise SandboxUnavailableError(f"seatbelt does not work here ({why})")


def _scratch(root: Path) -> Path:
    """Our own directory for the temporary files of programs in ``root``, the same each time.

    Raises SandboxUnavailableError if somebody else created it first.
    """
    name = f"codebutler-{os.geteuid()}-{hashlib.sha256(str(root).encode()).hexdigest()[:16]}"
    path = Path(tempfile.gettempdir()).resolve() / name
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise SandboxUnavailableError(f"{path} is not a private directory of CodeButler's: remove it")
    return path
