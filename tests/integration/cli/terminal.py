"""The program in a pseudo-terminal, as a person meets it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path


def in_terminal(args: list[str], answers: list[str], home: Path, extra: dict[str, str]) -> str:
    """Run the program in a pseudo-terminal, answering each question when it stands there."""
    main_fd, terminal = pty.openpty()
    env = {**os.environ, **extra, "CODEBUTLER_HOME": str(home)}
    process = subprocess.Popen(
        [sys.executable, "-m", "codebutler", *args],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=env,
        start_new_session=True,
    )
    os.close(terminal)
    shown = b""
    pending = list(answers)
    with os.fdopen(main_fd, "r+b", buffering=0) as screen:
        while True:
            try:
                chunk = screen.read(4096)
            except OSError:  # Linux: EIO once the other side is closed
                break
            if not chunk:
                break
            shown += chunk
            if pending and shown.endswith(b": "):
                screen.write(pending.pop(0).encode() + b"\n")
    assert process.wait(60) == 0, shown.decode()
    assert not pending
    return shown.decode()
