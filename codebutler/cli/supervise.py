"""`codebutler supervise`: serve all registered repositories until told to stop."""

from __future__ import annotations

import asyncio
import os


def run() -> None:
    """Serve all registered repositories until SIGTERM or SIGINT; a second signal ends it at once."""
    from codebutler.config.paths import Home
    from codebutler.parent.bootstrap import supervise

    asyncio.run(supervise(Home.from_env(os.environ), dict(os.environ)))
