"""Code that runs in the sandbox before a program and then becomes it; and hints about git in the sandbox.

In a namespace without network, it creates the sockets on which the proxy is reached and hands them out. In a repository
that tracks files of `.codebutler`, it makes them visible. Neither leaves anything behind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from codebutler.config.git_repo import NAMING
from codebutler_worker.sandbox.checkout import PRIVATE, SHARED, Checkout
from codebutler_worker.sandbox.destinations import read_regular
from codebutler_worker.sandbox.port import ProxySocket

INSIDE = "/run/codebutler-proxy"
"""The path of the proxy's socket inside."""

# Perl starts in a quarter of Python's time but cannot send a descriptor, so we make the system call ourselves.
# sendmsg(2), cmsg(3), unix(7); 64-bit, little endian.
SENDMSG: Mapping[str, int] = MappingProxyType({"x86_64": 46, "aarch64": 211})
QUIET = {"PERL_BADLANG": "0"}
"""Otherwise Perl warns about locales that are not installed (perllocale)."""
PERL = r"""
delete $ENV{PERL_BADLANG};
my ($socket, $ports, $sendmsg, @argv) = @ARGV;
sub give_up { print STDERR "codebutler: there is no way out of the sandbox\n"; exit 1 }
my ($way, @listeners);
for my $port (split /,/, $ports) {
    my $listener;
    if (socket($listener, 2, 1, 0) and bind($listener, pack("S n C4 x8", 2, $port, 127, 0, 0, 1))
        and listen($listener, 128)) { push @listeners, $listener } elsif (!@listeners) { give_up }
}
socket($way, 1, 1, 0) and connect($way, pack("S Z108", 1, $socket)) or give_up;
my $dot = ".";
my $rights = pack("Q l l i*", 16 + 4 * @listeners, 1, 1, map { fileno $_ } @listeners);
$rights .= "\0" x (-length($rights) % 8);
my $vector = pack("P Q", $dot, 1);
my $message = pack("Q Q P Q P Q l x4", 0, 0, $vector, 1, $rights, length $rights, 0);
syscall($sendmsg, fileno $way, $message, 0) == 1 or give_up;
exec {$argv[0]} @argv;
print STDERR "cannot start $argv[0]: $!\n";
exit 127
"""

# For any Python 3: the system's need not be ours. `_socket`, because importing `socket` takes as long as starting the
# interpreter. The interpreter ignores two signals, and the program it becomes would inherit that.
SCRIPT = """
import _signal, _socket, os, sys
path, ports, *argv = sys.argv[1:]
listeners = []
for port in ports.split(","):
    try:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", int(port)))
        listener.listen(128)
        listeners.append(listener)
    except OSError:
        if not listeners:
            sys.exit("codebutler: there is no way out of the sandbox")
way = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
try:
    way.connect(path)
    fds = b"".join(listener.fileno().to_bytes(4, sys.byteorder) for listener in listeners)
    way.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
except OSError:
    sys.exit("codebutler: there is no way out of the sandbox")
for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(number, _signal.SIG_DFL)
try:
    os.execvp(argv[0], argv)
except OSError as error:
    sys.stderr.write("cannot start %s: %s\\n" % (argv[0], error.strerror))
    os._exit(127)
"""


def through(
    proxy: ProxySocket, interpreter: Path, argv: tuple[str, ...], *, perl_on: str = ""
) -> tuple[str, ...]:
    """``argv`` as it is started if ``proxy`` is the only way out: by Python or, on a machine ``perl_on`` that is in
    ``SENDMSG``, by Perl. Pure."""
    ports = ",".join(map(str, (proxy.port, *proxy.others)))
    if perl_on:
        return (str(interpreter), "-e", PERL.strip(), INSIDE, ports, str(SENDMSG[perl_on]), *argv)
    return (str(interpreter), "-I", "-S", "-c", SCRIPT.strip(), INSIDE, ports, *argv)


GIT_NOTICE = (
    "Git in this sandbox: you can commit, branch and merge. The repository's configuration and its list of worktrees "
    "are read-only, so `git config`, `git remote add`, `git branch -u` and `git worktree add` fail: for one command "
    "use `git -c KEY=VALUE`, for a second checkout `git clone . /tmp/NAME`, and ask the owner for a lasting change. "
    "`.codebutler` shows only what git tracks of it, and keeps nothing but what you put into `.codebutler/files`. If "
    f"git asks who you are, do not invent a name: ask the owner to run {NAMING} on the machine that runs CodeButler."
)
"""Explains git in the sandbox to agents driven by a model."""
# What refusals of the sandbox look like: mounts, and seatbelt's rules (errno(3)).
_REFUSED = "(Device or resource busy|Read-only file system|Operation not permitted)"
_HINTS = (
    (
        re.compile("Please tell me who you are|empty ident name"),
        f"Git does not know whose commit this is. On the machine that runs CodeButler, run {NAMING}, then try again.",
    ),
    (
        re.compile(f"could not (write|lock) config file .*: {_REFUSED}"),
        "The sandbox keeps git's configuration read-only. For one command use `git -c KEY=VALUE …`; for a lasting "
        "change run this on the machine that runs CodeButler, outside the sandbox.",
    ),
    (
        re.compile(f"could not create directory of '.*worktrees/.*': {_REFUSED}"),
        "The sandbox does not let git add worktrees. Clone instead (`git clone . /tmp/NAME`), or set `agent.isolation` "
        'to "worktree", which gives each thread its own.',
    ),
)


def hint(output: str) -> str:
    """What to do about a git failure caused by the sandbox or a missing name; "" for all other output. Pure."""
    return next((advice for failure, advice in _HINTS if failure.search(output)), "")


# Files that git tracks below `.codebutler`, which is hidden otherwise. If they were missing, git inside would see them
# as deleted, and `git commit -a` would commit that. So each program starts with these files as the index has them, in a
# private directory in memory: git sees no change, and can check out, stash and reset them like any other file. They
# reveal nothing new (git's objects contain them), and changes to them have no effect outside.

FAILED = f"codebutler: what git tracks in {PRIVATE} could not be shown: do not commit that it is deleted"
LIMIT_S = 10
"""A file of git may have been replaced by a pipe that nobody writes to."""
LARGEST_BYTES = 64 * 2**20
FULL_NAMES = (2, 3)
"""The index versions that store each path in full (gitformat-index(5))."""
_NAMED = " ".join((PRIVATE, *(f"':(exclude){PRIVATE}/{name}'" for name in SHARED)))
_SHOW = f"""
  {{
    git -C "$place" ls-files -z -- {_NAMED} |
      timeout {LIMIT_S} git -C "$place" checkout-index -f -q -z --stdin
  }} </dev/null >/dev/null 2>&1 || echo "{FAILED}" >&2
"""
# Our own .gitignore is hidden too: without one, `git add -A` would add the files that people sent.
_BEGIN = """
places=$1; shift
for place in $places; do{show}
  {{ [ -e "$place/{private}/.gitignore" ] || echo '*' > "$place/{private}/.gitignore"; }} 2>/dev/null
done
exec "$@"
"""


def with_tracked(argv: tuple[str, ...], checkout: Checkout, places: str = ".") -> tuple[str, ...]:
    """``argv``, started in ``checkout`` after the tracked files are in place. ``places``: where the checkout appears,
    separated by spaces."""
    if checkout.private is None or checkout.index is None:
        return argv
    try:
        may_track = names_private(read_regular(checkout.index.parent, checkout.index.name, LARGEST_BYTES))
    except FileNotFoundError:
        may_track = False
    except OSError:
        may_track = True
    script = _BEGIN.format(show=_SHOW if may_track else "", private=PRIVATE)
    return ("/bin/sh", "-c", script.strip(), "codebutler", places, *argv)


def names_private(index: bytes) -> bool:
    """Whether git's index may name a file below `.codebutler`; True if only git can tell. Pure."""
    if not index:
        return False
    whole = int.from_bytes(index[4:8], "big") in FULL_NAMES and b"link" not in index
    return not whole or f"{PRIVATE}/".encode() in index
