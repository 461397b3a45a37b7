"""How much memory a process really costs."""

from __future__ import annotations

from pathlib import Path


def pss_bytes(pid: int) -> int | None:
    """The proportional set size (Linux, /proc/PID/smaps_rollup); None where it cannot be known."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None
