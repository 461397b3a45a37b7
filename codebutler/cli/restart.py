"""``codebutler restart``: the supervisor restarts in place, and unfinished work resumes."""

from __future__ import annotations

import time
from typing import Any

from codebutler.cli.context import asked, talk
from codebutler.cli.output import notice, say
from codebutler.control.messages import RestartRequest, StatusReply, StatusRequest
from codebutler.domain.errors import CodeButlerError

LOOK_S = 0.3
# Longer than running work has to finish, and a start takes.
PATIENCE_S = 120.0


def run() -> None:
    """Restart the running supervisor with the installed version; running work resumes."""
    began_s = time.monotonic()
    notice(talk(RestartRequest()).text)
    while (waited_s := time.monotonic() - began_s) < PATIENCE_S:
        time.sleep(LOOK_S)
        found = _supervisor()
        if found and found["uptime_s"] < waited_s:
            say(f"Restarted: pid {found['pid']}, version {found['version']}.")
            return
    raise CodeButlerError("the supervisor has not come back: see `codebutler logs`")


def _supervisor() -> dict[str, Any]:
    try:
        status: dict[str, Any] = asked(StatusRequest(), StatusReply).status["supervisor"]
    except CodeButlerError:
        return {}  # between the two
    return status
