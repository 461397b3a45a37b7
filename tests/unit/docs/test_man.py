"""The manual page is what the commands say today, and a manual page reader has nothing to say against it."""

from __future__ import annotations

import subprocess

from codebutler.cli.app import COMMANDS
from tests.programs import require
from tests.unit.docs.man import PAGE, manual


def test_it_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == manual(), "run `make docs`"


def test_it_reads_without_a_warning() -> None:
    command = [require("groff"), "-man", "-Tascii", "-P-cbu", "-ww", "-rHY=0", PAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    for row in COMMANDS:
        assert f"codebutler {row.name}" in done.stdout
