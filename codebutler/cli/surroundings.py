"""Where a command runs: the home and the environment of this process."""

from __future__ import annotations

import os
from collections.abc import Mapping

from codebutler.config.paths import Home


def environment() -> Mapping[str, str]:
    """The variables of this process."""
    return os.environ


def home() -> Home:
    """The home this process's environment names; nothing is created."""
    return Home.from_env(os.environ)
