"""How the threads of one process share its interpreter."""

from __future__ import annotations

import sys

HANDOVER_S = 0.0005


def hand_over_soon() -> None:
    """Let a thread that waits for the interpreter have it after HANDOVER_S, for the whole process.

    Python's own 5 ms are made for throughput. Here each step of a message goes from the loop to the thread of a
    store and back, and waited them out while the loop was at something else.
    """
    sys.setswitchinterval(HANDOVER_S)
