"""CodeButler as a user service."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping

from codebutler.config.paths import Home
from codebutler.platform.service import ServiceSpec

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# The locale and the certificates; no token, no key: a unit file is no place for secrets.
CARRIED = ("LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME")


def service_for(home: Home, env: Mapping[str, str], *, setuid_sandbox: bool = False) -> ServiceSpec:
    """The service of ``home`` as the user with ``env`` would run it by hand. ``setuid_sandbox``: bubblewrap
    needs its setuid bit here, which a service without new privileges would lose."""
    usual = Home.from_env({"HOME": env.get("HOME", "")})
    name = "codebutler"
    environment = {"PATH": env.get("PATH") or DEFAULT_PATH}
    environment |= {key: env[key] for key in CARRIED if env.get(key)}
    if home.root != usual.root:
        name += f"-{hashlib.sha256(os.fsencode(home.root)).hexdigest()[:8]}"
        environment["CODEBUTLER_HOME"] = str(home.root)
    return ServiceSpec(
        name=name,
        # -I: neither the working directory nor PYTHON* variables decide what code runs.
        argv=(sys.executable, "-I", "-X", "utf8", "-m", "codebutler", "supervise"),
        home=home.root,
        environment=environment,
        locked_privileges=not setuid_sandbox,
    )
