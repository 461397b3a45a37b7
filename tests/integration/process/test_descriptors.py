"""How many files may be open: raised for us, not for what we start."""

from __future__ import annotations

import subprocess
import sys

LIMITS = """
import resource
from codebutler.platform.processes import raise_limit, lower_to
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, min(hard, 900)))
raised = raise_limit()
print(raised.given, raised.now, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
lower_to(raised.given)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_the_limit_is_raised_to_the_hard_one_and_given_back_to_what_is_started() -> None:
    ran = subprocess.run([sys.executable, "-c", LIMITS], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["100", "900", "900", "100"]
