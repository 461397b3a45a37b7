"""What runs first in a namespace without network: it makes the socket that the way out is reached at, hands it out
through the door and becomes the program. Nothing of it stays.
"""

from __future__ import annotations

from pathlib import Path

from codebutler_worker.sandbox.port import Door

INSIDE = "/run/codebutler-door"
"""Where the door appears."""

# For any Python 3: a system's own need not be ours. `_socket`, because `socket` takes as long as the interpreter.
# An interpreter ignores two signals, and what it becomes would inherit that.
SCRIPT = """
import _signal, _socket, os, sys
door, port, *argv = sys.argv[1:]
listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
listener.bind(("127.0.0.1", int(port)))
listener.listen(128)
way = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
try:
    way.connect(door)
    fds = listener.fileno().to_bytes(4, sys.byteorder)
    way.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
    taken = way.recv(1)
except OSError as error:
    taken = b""
if not taken:
    sys.exit("codebutler: there is no way out of the sandbox")
for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(number, _signal.SIG_DFL)
try:
    os.execvp(argv[0], argv)
except OSError as error:
    sys.stderr.write("cannot start %s: %s\\n" % (argv[0], error.strerror))
    os._exit(127)
"""


def through(door: Door, python: Path, argv: tuple[str, ...]) -> tuple[str, ...]:
    """``argv`` as it is started behind ``door``. Pure."""
    return (str(python), "-I", "-S", "-c", SCRIPT.strip(), INSIDE, str(door.port), *argv)
