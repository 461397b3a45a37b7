"""What runs first in a namespace without network: it makes the sockets that the way out is reached at, hands them out
through the door and becomes the program. Nothing of it stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from codebutler_worker.sandbox.port import Door

INSIDE = "/run/codebutler-door"
"""Where the door appears."""

# Perl starts in a quarter of Python's time, but cannot send a descriptor: the kernel is asked itself. sendmsg(2),
# cmsg(3), unix(7); 64-bit, little endian.
SENDMSG: Mapping[str, int] = MappingProxyType({"x86_64": 46, "aarch64": 211})
QUIET = ("PERL_BADLANG", "0")
"""Else Perl complains of languages that are not installed (perllocale)."""
PERL = r"""
delete $ENV{PERL_BADLANG};
my ($door, $ports, $sendmsg, @argv) = @ARGV;
sub give_up { print STDERR "codebutler: there is no way out of the sandbox\n"; exit 1 }
my ($way, @listeners);
for my $port (split /,/, $ports) {
    my $listener;
    if (socket($listener, 2, 1, 0) and bind($listener, pack("S n C4 x8", 2, $port, 127, 0, 0, 1))
        and listen($listener, 128)) { push @listeners, $listener } elsif (!@listeners) { give_up }
}
socket($way, 1, 1, 0) and connect($way, pack("S Z108", 1, $door)) or give_up;
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

# For any Python 3: a system's own need not be ours. `_socket`, because `socket` takes as long as the interpreter.
# An interpreter ignores two signals, and what it becomes would inherit that.
SCRIPT = """
import _signal, _socket, os, sys
door, ports, *argv = sys.argv[1:]
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
    way.connect(door)
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


def swiftly(door: Door, perl: Path, machine: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The same with Perl, on a ``machine`` that is in ``SENDMSG``. Pure."""
    return (str(perl), "-e", PERL.strip(), INSIDE, door.ports, str(SENDMSG[machine]), *argv)


def through(door: Door, python: Path, argv: tuple[str, ...]) -> tuple[str, ...]:
    """``argv`` as it is started behind ``door``. Pure."""
    return (str(python), "-I", "-S", "-c", SCRIPT.strip(), INSIDE, door.ports, *argv)
