"""What a service manager is told of us. Pure: what is written where is in ``systemd`` and ``launchd``."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.paths import Home

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# The locale and the certificates; no token, no key: a unit file is no place for secrets.
CARRIED = ("LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """``name`` is the same for the same home. ``argv`` starts the supervisor; ``environment`` is all it gets
    of the shell that installs it. ``stop_s``: how long an ordered end may take."""

    name: str
    argv: tuple[str, ...]
    home: Path
    environment: Mapping[str, str]
    locked_privileges: bool = True
    stop_s: int = 45


def service_for(home: Home, env: Mapping[str, str], *, setuid_sandbox: bool = False) -> Service:
    """The service of ``home`` as the user with ``env`` would run it by hand. ``setuid_sandbox``: bubblewrap
    needs its setuid bit here, which a service that may gain no privileges would take from it."""
    usual = Home.from_env({"HOME": env.get("HOME", "")})
    name = "codebutler"
    environment = {"PATH": env.get("PATH") or DEFAULT_PATH}
    environment |= {key: env[key] for key in CARRIED if env.get(key)}
    if home.root != usual.root:
        name += f"-{hashlib.sha256(os.fsencode(home.root)).hexdigest()[:8]}"
        environment["CODEBUTLER_HOME"] = str(home.root)
    return Service(
        name=name,
        # -I: neither the working directory nor PYTHON* variables decide what code runs.
        argv=(sys.executable, "-I", "-X", "utf8", "-m", "codebutler", "supervise"),
        home=home.root,
        environment=environment,
        locked_privileges=not setuid_sandbox,
    )
